// The same ops on GPUs, by the kernels of fused_ops/cuda. Python registers them with a table of
// functions: those of the CUDA library, and one that finds the stream, because TF_GetStream of
// TensorFlow's C API works for plug-ins only. Nothing here waits for the GPU.

#include "cuda/epilogue.h"
#include "cuda/quantize.h"
#include "tf/epilogue_attributes.h"
#include "tf/quantize_attributes.h"

namespace qgraph::tf {
namespace {

// The table of functions, in the order in which qgraph/train/gpu.py fills it.
struct Functions {
    void* (*stream)(void* context);
    decltype(&qgraph_cuda_quantize) quantize;
    decltype(&qgraph_cuda_workspace) workspace;
    decltype(&qgraph_cuda_quantize_gradients) quantize_gradients;
    decltype(&qgraph_cuda_epilogue_forward) epilogue;
    decltype(&qgraph_cuda_epilogue_workspace) epilogue_workspace;
    decltype(&qgraph_cuda_epilogue_gradients) epilogue_gradients;
};

Functions functions;  // set once, before any kernel is registered

// A run of a kernel on a GPU, with its stream and its errors.
class GpuRun : public Run {
  public:
    explicit GpuRun(TF_OpKernelContext* context) : Run(context) {
        stream = functions.stream(context);
        if (stream == nullptr) fail("TensorFlow has no stream for this GPU");
    }

    void check(const char* error) {
        if (error != nullptr) fail(std::string("CUDA: ") + error);
    }

    void* stream;
};

qgraph_cuda_quantizer quantizer(const quantize_op::Attributes& attributes, const Tensor& log2_t) {
    const Levels& levels = attributes.levels;
    return {floats(log2_t),
            size(shape(log2_t)),
            levels.bits - levels.is_signed + levels.offset,
            levels.low(),
            levels.high(),
            static_cast<int32_t>(attributes.type),
            static_cast<int32_t>(attributes.rounding)};
}

void quantize(void* kernel, TF_OpKernelContext* context) {
    GpuRun run(context);
    const Tensor x = run.input(0);
    const Tensor log2_t = run.input(1);
    if (!run.fine()) return;
    const Shape dims = shape(x);
    run.check_thresholds(log2_t, dims);
    if (!run.fine()) return;
    const Tensor y = run.output_in_place(dims);
    if (!run.fine() || size(dims) == 0) return;
    const auto q = quantizer(*static_cast<quantize_op::Attributes*>(kernel), log2_t);
    run.check(functions.quantize(&q, data(x), data(y), size(dims), run.stream));
}

void quantize_gradients(void* kernel, TF_OpKernelContext* context) {
    GpuRun run(context);
    const quantize_op::GradientInputs in(run);
    run.check_thresholds(in.log2_t, in.dims);
    if (!run.fine()) return;
    const Tensor gx = run.output_in_place(in.dims);
    const Tensor sums = run.float_output(1, shape(in.log2_t));
    const auto q = quantizer(*static_cast<quantize_op::Attributes*>(kernel), in.log2_t);
    if (!run.fine() || q.channels == 0) return;
    const int64_t count = size(in.dims);
    const Tensor work = run.workspace(functions.workspace(count, q.channels));
    if (!run.fine()) return;
    run.check(functions.quantize_gradients(&q, data(in.x), data(in.g), data(gx), data(sums), 1,
                                           count, data(work), run.stream));
}

// Inputs of both epilogue ops, from `first` on.
class Inputs {
  public:
    Inputs(GpuRun& run, const epilogue_op::Attributes& attributes, int first)
        : x(run.input(first)),
          bias(run.input(first + 1)),
          high(run.input(first + 2)),
          inner(run.input(first + 3)),
          outer(run.input(first + 4)) {
        if (!run.fine()) return;
        dims = shape(x);
        const char* wrong = epilogue_op::wrong(attributes, dims, shape(bias), shape(high));
        if (wrong != nullptr) run.fail(wrong);
        if (!shape(inner).empty() || !shape(outer).empty()) run.fail("log2_t must be scalars");
        if (!run.fine()) return;
        const auto codes = [](const Tensor& log2_t, const Levels& levels) {
            return qgraph_cuda_codes{floats(log2_t), levels.bits - levels.is_signed, levels.low(),
                                     levels.high()};
        };
        epilogue = {codes(inner, attributes.inner),
                    codes(outer, attributes.outer),
                    floats(bias),
                    floats(high),
                    dims.back(),
                    static_cast<int32_t>(attributes.rounding),
                    static_cast<int32_t>(attributes.kind)};
    }

    const Tensor x, bias, high, inner, outer;
    Shape dims;
    qgraph_cuda_epilogue epilogue{};
};

void epilogue(void* kernel, TF_OpKernelContext* context) {
    GpuRun run(context);
    const Inputs in(run, *static_cast<epilogue_op::Attributes*>(kernel), 0);
    if (!run.fine()) return;
    const Tensor y = run.output_in_place(in.dims);
    if (!run.fine() || size(in.dims) == 0) return;
    run.check(functions.epilogue(&in.epilogue, floats(in.x), floats(y), size(in.dims), run.stream));
}

void epilogue_gradients(void* kernel, TF_OpKernelContext* context) {
    GpuRun run(context);
    const Tensor g = run.input(0);
    const Inputs in(run, *static_cast<epilogue_op::Attributes*>(kernel), 1);
    run.check_gradient(g, in.dims);
    if (!run.fine()) return;
    const Tensor gx = run.output_in_place(in.dims);
    const Tensor bias = run.float_output(1, shape(in.bias));
    const Tensor high = run.float_output(2, shape(in.high));
    const Tensor inner = run.float_output(3, {});
    const Tensor outer = run.float_output(4, {});
    if (!run.fine() || in.dims.back() == 0) return;
    const int64_t count = size(in.dims);
    const Tensor work = run.workspace(
        functions.epilogue_workspace(count, in.epilogue.channels, in.epilogue.activation));
    if (!run.fine()) return;
    const qgraph_cuda_epilogue_results to{floats(gx), data(inner), data(outer),
                                          data(bias), data(high),  1};
    run.check(functions.epilogue_gradients(&in.epilogue, floats(in.x), floats(g), &to, count,
                                           data(work), run.stream));
}

}  // namespace
}  // namespace qgraph::tf

// Registers the ops for a device, which is "GPU" except in tests. Tests register functions that
// need no GPU for the CPU, with a priority above that of the CPU's kernels.
extern "C" __attribute__((visibility("default"))) void qgraph_register_gpu(const void* table,
                                                                           const char* device,
                                                                           int priority) {
    using namespace qgraph::tf;
    functions = *static_cast<const Functions*>(table);
    add_kernel("QgraphQuantize", quantize_op::kernel(quantize), device, priority);
    add_kernel("QgraphQuantizeGrad", quantize_op::kernel(quantize_gradients), device, priority);
    add_kernel("QgraphEpilogue", epilogue_op::kernel(epilogue), device, priority);
    add_kernel("QgraphEpilogueGrad", epilogue_op::kernel(epilogue_gradients), device, priority);
}
