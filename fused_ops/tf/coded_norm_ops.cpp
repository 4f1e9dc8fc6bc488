// TensorFlow ops QgraphNormalizeCodes and QgraphNormalizeCodesGrad on the CPU: batch norms of
// values that are stored as codes in bytes (core/coded_norm.h). Channels are the last axis.

#include "core/coded_norm.h"
#include "tf/code_attributes.h"

namespace qgraph::tf {
namespace {

// The vectors of channels from input `first` on. An error if one does not fit.
std::vector<Tensor> vectors(Run& run, int first, const Shape& dims) {
    std::vector<Tensor> found;
    for (int i = 0; i < 3; ++i) {
        found.push_back(run.input(first + i));
        if (run.fine() && (dims.empty() || shape(found.back()) != Shape{dims.back()})) {
            run.fail("vectors of channels must have the shape of the last axis of the codes");
        }
    }
    return found;
}

void normalize(void* kernel, TF_OpKernelContext* context) {
    Run run(context);
    const Tensor codes = run.input(0);
    const ByteCodes form = code_op::form(run, run.input(1), kernel);
    if (!run.fine()) return;
    const Shape dims = shape(codes);
    const std::vector<Tensor> norm = vectors(run, 2, dims);
    if (!run.fine()) return;
    const Tensor out = run.float_output(0, dims);
    if (!run.fine()) return;
    normalize_codes(bytes(codes), form, floats(out), size(dims), dims.back(),
                    {floats(norm[0]), floats(norm[1]), floats(norm[2])});
}

void gradient(void* kernel, TF_OpKernelContext* context) {
    Run run(context);
    const Tensor g = run.input(0);
    const Tensor codes = run.input(1);
    const ByteCodes form = code_op::form(run, run.input(2), kernel);
    if (!run.fine()) return;
    const Shape dims = shape(codes);
    run.check_gradient(g, dims);
    const std::vector<Tensor> batch = vectors(run, 3, dims);
    if (!run.fine()) return;
    const Tensor out = run.output_in_place(dims);
    if (!run.fine()) return;
    normalized_codes_gradient(floats(g), bytes(codes), form, floats(out), size(dims), dims.back(),
                              {floats(batch[0]), floats(batch[1]), floats(batch[2])});
}

void infer(TF_ShapeInferenceContext* context, TF_Status* status) {
    copy_shape(context, 0, 0, status);
}

const bool registered = [] {
    Op op{"QgraphNormalizeCodes",
          {"codes: uint8", "log2_t: float", "centre: float", "scale: float", "shift: float"},
          {"y: float"},
          code_op::attributes(),
          infer,
          code_op::kernel(normalize)};
    add(op);
    op.name = "QgraphNormalizeCodesGrad";
    op.inputs = {"g: float",    "codes: uint8", "log2_t: float",
                 "mean: float", "scale: float", "slope: float"};
    op.outputs = {"gx: float"};
    op.kernel.compute = gradient;
    add(op);
    return true;
}();

}  // namespace
}  // namespace qgraph::tf
