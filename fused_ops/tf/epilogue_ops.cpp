// TensorFlow ops QgraphEpilogue and QgraphEpilogueGrad on the CPU: the operations behind a layer
// (core/epilogue.h). bias and high have one value for each channel; channels are the last axis of
// x. high is empty unless the activation is clip or relu6. These two differ only at v = high, where
// relu6 has no gradient. QgraphNormedEpilogue normalizes x first, by vectors of channels.

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

// The further inputs of normed epilogues, behind those of `in`.
class NormInputs {
  public:
    NormInputs(Run& run, const Inputs& in, int first)
        : centre(run.input(first)), scale(run.input(first + 1)), shift(run.input(first + 2)) {
        if (!run.fine()) return;
        const Shape dims{in.channels};
        if (shape(centre) != dims || shape(scale) != dims || shape(shift) != dims) {
            run.fail("centre, scale and shift must have the shape of the last axis of x");
        }
    }

    Norm norm() const { return {floats(centre), floats(scale), floats(shift)}; }

    const Tensor centre, scale, shift;
};

template <bool Normed>
void compute(void* kernel, TF_OpKernelContext* context) {
    Run run(context);
    const Inputs in(run, *static_cast<const Attributes*>(kernel), 0);
    if (!run.fine()) return;
    const Tensor y = run.output_in_place(in.dims);
    if (!run.fine()) return;
    if constexpr (Normed) {
        const NormInputs norm(run, in, 5);
        if (!run.fine()) return;
        normed_epilogue(floats(in.x), floats(y), size(in.dims), norm.norm(), in.epilogue());
    } else {
        epilogue(floats(in.x), floats(y), size(in.dims), in.epilogue());
    }
}

template <bool Normed>
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
    const int64_t count = size(in.dims);
    if constexpr (Normed) {
        const NormInputs norm(run, in, 6);
        if (!run.fine()) return;
        std::vector<double> scale(bias.size()), shift(bias.size());
        NormSums norm_sums{scale.data(), shift.data()};
        normed_epilogue_gradients(floats(in.x), floats(g), floats(gx), sums, norm_sums, count,
                                  norm.norm(), in.epilogue());
        run.output_sums(5, shape(in.bias), scale.data());
        run.output_sums(6, shape(in.bias), shift.data());
    } else {
        epilogue_gradients(floats(in.x), floats(g), floats(gx), sums, count, in.epilogue());
    }
    run.output_sums(1, shape(in.bias), bias.data());
    run.output_sums(2, shape(in.high), high.data());
    run.output_sums(3, {}, &sums.inner);
    run.output_sums(4, {}, &sums.outer);
}

void infer(TF_ShapeInferenceContext* context, TF_Status* status) {
    copy_shape(context, 0, 0, status);
}

// Output i has the shape of input i + 1, behind the gradient; of a norm, only scale and shift have
// gradients.
template <int Outputs>
void infer_gradients(TF_ShapeInferenceContext* context, TF_Status* status) {
    for (int i = 0; i < Outputs && TF_GetCode(status) == TF_OK; ++i) {
        copy_shape(context, i, i < 5 ? i + 1 : i + 2, status);
    }
}

const bool registered = [] {
    Op op{"QgraphEpilogue",
          {"x: float", "bias: float", "high: float", "inner_log2_t: float", "log2_t: float"},
          {"y: float"},
          {"inner_bits: int >= 1", "inner_signed: bool", "bits: int >= 1", "signed: bool",
           kRoundingAttribute, "activation: {'none', 'relu', 'relu6', 'clip'}"},
          infer,
          epilogue_op::kernel(compute<false>)};
    add(op);
    Op normed = op;
    normed.name = "QgraphNormedEpilogue";
    for (const char* vector : {"centre: float", "scale: float", "shift: float"}) {
        normed.inputs.push_back(vector);
    }
    normed.kernel.compute = compute<true>;
    add(normed);
    op.name = "QgraphEpilogueGrad";
    normed.name = "QgraphNormedEpilogueGrad";
    for (Op* of : {&op, &normed}) {
        of->inputs.insert(of->inputs.begin(), "g: float");
        of->outputs = {"gx: float", "gbias: float", "ghigh: float", "ginner_log2_t: float",
                       "glog2_t: float"};
    }
    op.infer = infer_gradients<5>;
    op.kernel.compute = compute_gradients<false>;
    add(op);
    normed.outputs.push_back("gscale: float");
    normed.outputs.push_back("gshift: float");
    normed.infer = infer_gradients<7>;
    normed.kernel.compute = compute_gradients<true>;
    add(normed);
    return true;
}();

}  // namespace
}  // namespace qgraph::tf
