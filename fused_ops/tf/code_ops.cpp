// TensorFlow ops QgraphPackCodes and QgraphUnpackCodes on the CPU: codes of at most 8 bits in bytes
// (core/codes.h). Values lie on the grid of a quantizer with these levels and the threshold log2_t.

#include "tf/code_attributes.h"

namespace qgraph::tf {
namespace {

template <bool Packs>
void compute(void* kernel, TF_OpKernelContext* context) {
    Run run(context);
    const Tensor from = run.input(0);
    const ByteCodes form = code_op::form(run, run.input(1), kernel);
    if (!run.fine()) return;
    const Shape dims = shape(from);
    const Tensor to = Packs ? run.byte_output(0, dims) : run.float_output(0, dims);
    if (!run.fine()) return;
    if constexpr (Packs) {
        pack_codes(floats(from), bytes(to), size(dims), form);
    } else {
        unpack_codes(bytes(from), floats(to), size(dims), form);
    }
}

void infer(TF_ShapeInferenceContext* context, TF_Status* status) {
    copy_shape(context, 0, 0, status);
}

const bool registered = [] {
    Op op{"QgraphPackCodes",
          {"x: float", "log2_t: float"},
          {"codes: uint8"},
          code_op::attributes(),
          infer,
          code_op::kernel(compute<true>)};
    add(op);
    op.name = "QgraphUnpackCodes";
    op.inputs = {"codes: uint8", "log2_t: float"};
    op.outputs = {"x: float"};
    op.kernel.compute = compute<false>;
    add(op);
    return true;
}();

}  // namespace
}  // namespace qgraph::tf
