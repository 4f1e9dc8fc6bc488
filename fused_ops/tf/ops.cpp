// TensorFlow ops QgraphQuantize and QgraphQuantizeGrad on the CPU, registered when the library is
// loaded. Each element of log2_t gives an exponent f = bits - signed + offset - ceil(log2_t). The
// shape of log2_t is that of the last axes of x.

#include "core/parallel.h"
#include "core/quantize.h"
#include "tf/quantize_attributes.h"

namespace qgraph::tf {
namespace {

using quantize_op::Attributes;

Quantizer quantizer(const std::vector<int32_t>& f, const Attributes& attributes) {
    return {f.data(), static_cast<int64_t>(f.size()), attributes.levels.low(),
            attributes.levels.high(), attributes.rounding};
}

void compute(void* kernel, TF_OpKernelContext* context) {
    const Attributes& attributes = *static_cast<const Attributes*>(kernel);
    Run run(context);
    const Tensor x = run.input(0);
    const Tensor log2_t = run.input(1);
    if (!run.fine()) return;
    const Shape dims = shape(x);
    const std::vector<int32_t> f = run.exponents(log2_t, dims, attributes.levels);
    if (!run.fine()) return;
    const Tensor y = run.output_in_place(dims);
    if (!run.fine()) return;
    quantize(data(x), data(y), size(dims), quantizer(f, attributes), attributes.type);
}

void compute_gradients(void* kernel, TF_OpKernelContext* context) {
    const Attributes& attributes = *static_cast<const Attributes*>(kernel);
    Run run(context);
    const quantize_op::GradientInputs in(run);
    if (!run.fine()) return;
    const std::vector<int32_t> f = run.exponents(in.log2_t, in.dims, attributes.levels);
    if (!run.fine()) return;
    const Tensor gx = run.output_in_place(in.dims);
    if (!run.fine()) return;
    std::vector<double> sums(f.size());
    quantize_gradients(data(in.x), data(in.g), data(gx), sums.data(), size(in.dims),
                       quantizer(f, attributes), attributes.type);
    run.output_sums(1, shape(in.log2_t), sums.data());
}

void infer(TF_ShapeInferenceContext* context, TF_Status* status) {
    copy_shape(context, 0, 0, status);
}

void infer_gradients(TF_ShapeInferenceContext* context, TF_Status* status) {
    copy_shape(context, 0, 1, status);
    if (TF_GetCode(status) == TF_OK) copy_shape(context, 1, 2, status);
}

const bool registered = [] {
    Op op{"QgraphQuantize",
          {"x: T", "log2_t: float"},
          {"y: T"},
          {"T: {float, bfloat16, half} = DT_FLOAT", "bits: int >= 1", "signed: bool",
           kRoundingAttribute, "offset: int = 0"},
          infer,
          quantize_op::kernel(compute)};
    add(op);
    op.name = "QgraphQuantizeGrad";
    op.inputs = {"g: T", "x: T", "log2_t: float"};
    op.outputs = {"gx: T", "glog2_t: float"};
    op.infer = infer_gradients;
    op.kernel.compute = compute_gradients;
    add(op);
    return true;
}();

}  // namespace
}  // namespace qgraph::tf

extern "C" __attribute__((visibility("default"))) void qgraph_set_threads(int count) {
    qgraph::set_threads(count);
}
