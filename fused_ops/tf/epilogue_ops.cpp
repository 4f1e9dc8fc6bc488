// TensorFlow ops QgraphEpilogue and QgraphEpilogueGrad on the CPU: the operations behind a layer
// (core/epilogue.h). bias and high have one value for each channel; channels are the last axis of
// x. high is empty unless the activation is clip or relu6. These two differ only at v = high, where
// relu6 has no gradient.

#include "core/epilogue.h"
#include "tf/epilogue_attributes.h"

namespace qgraph::tf {
namespace {

using epilogue_op::Attributes;
using epilogue_op::Kind;

// The inputs of both ops, from `first` on.
class Inputs {
  public:
    Inputs(Run& run, const Attributes& attributes, int first)
        : x(run.input(first)),
          bias(run.input(first + 1)),
          high(run.input(first + 2)),
          attributes_(attributes) {
        const Tensor inner = run.input(first + 3);
        const Tensor outer = run.input(first + 4);
        if (!run.fine()) return;
        dims = shape(x);
        channels = dims.empty() ? 0 : dims.back();
        if (const char* wrong = epilogue_op::wrong(attributes, dims, shape(bias), shape(high))) {
            run.fail(wrong);
        }
        if (run.fine()) inner_ = grid(run, inner, attributes.inner);
        if (run.fine()) outer_ = grid(run, outer, attributes.outer);
    }

    Epilogue epilogue() const {
        return {inner_,   outer_,       attributes_.rounding, attributes_.activation(),
                channels, floats(bias), floats(high),         attributes_.kind == Kind::relu6};
    }

    const Tensor x, bias, high;
    Shape dims;
    int64_t channels = 0;

  private:
    static Grid grid(Run& run, const Tensor& log2_t, const Levels& levels) {
        const std::vector<int32_t> f = run.exponents(log2_t, {}, levels);
        return {run.fine() ? f[0] : 0, levels.low(), levels.high()};
    }

    const Attributes& attributes_;
    Grid inner_{}, outer_{};
};

void compute(void* kernel, TF_OpKernelContext* context) {
    Run run(context);
    const Inputs in(run, *static_cast<const Attributes*>(kernel), 0);
    if (!run.fine()) return;
    const Tensor y = run.output_in_place(in.dims);
    if (!run.fine()) return;
    epilogue(floats(in.x), floats(y), size(in.dims), in.epilogue());
}

void compute_gradients(void* kernel, TF_OpKernelContext* context) {
    const Attributes& attributes = *static_cast<const Attributes*>(kernel);
    Run run(context);
    const Tensor g = run.input(0);
    const Inputs in(run, attributes, 1);
    run.check_gradient(g, in.dims);
    if (!run.fine()) return;
    const Tensor gx = run.output_in_place(in.dims);
    if (!run.fine()) return;
    std::vector<double> bias(static_cast<size_t>(in.channels));
    std::vector<double> high(attributes.clips() ? bias.size() : 0);
    EpilogueSums sums{0, 0, bias.data(), high.data()};
    epilogue_gradients(floats(in.x), floats(g), floats(gx), sums, size(in.dims), in.epilogue());
    run.output_sums(1, shape(in.bias), bias.data());
    run.output_sums(2, shape(in.high), high.data());
    run.output_sums(3, {}, &sums.inner);
    run.output_sums(4, {}, &sums.outer);
}

void infer(TF_ShapeInferenceContext* context, TF_Status* status) {
    copy_shape(context, 0, 0, status);
}

void infer_gradients(TF_ShapeInferenceContext* context, TF_Status* status) {
    for (int i = 0; i < 5 && TF_GetCode(status) == TF_OK; ++i) {
        copy_shape(context, i, i + 1, status);
    }
}

const bool registered = [] {
    Op op{"QgraphEpilogue",
          {"x: float", "bias: float", "high: float", "inner_log2_t: float", "log2_t: float"},
          {"y: float"},
          {"inner_bits: int >= 1", "inner_signed: bool", "bits: int >= 1", "signed: bool",
           kRoundingAttribute, "activation: {'none', 'relu', 'relu6', 'clip'}"},
          infer,
          epilogue_op::kernel(compute)};
    add(op);
    op.name = "QgraphEpilogueGrad";
    op.inputs.insert(op.inputs.begin(), "g: float");
    op.outputs = {"gx: float", "gbias: float", "ghigh: float", "ginner_log2_t: float",
                  "glog2_t: float"};
    op.infer = infer_gradients;
    op.kernel.compute = compute_gradients;
    add(op);
    return true;
}();

}  // namespace
}  // namespace qgraph::tf
