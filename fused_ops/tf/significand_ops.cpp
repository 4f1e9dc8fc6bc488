// TensorFlow op QgraphRoundSignificand on the CPU, for float32 and float16 (core/significand.h).

#include "core/significand.h"
#include "tf/kernel.h"

namespace qgraph::tf {
namespace {

constexpr TF_DataType kTypeNames[] = {TF_FLOAT, TF_HALF};

struct Attributes {
    int32_t bits = 0;
    TF_DataType type = TF_FLOAT;
};

void* create(TF_OpKernelConstruction* construction) {
    auto attributes = std::make_unique<Attributes>();
    Reader reader(construction);
    reader.read("bits", &attributes->bits);
    reader.read("T", &attributes->type);
    reader.require(attributes->bits <= kMaxSignificand, "bits must be in [1, 10]");
    return reader.done() ? attributes.release() : nullptr;
}

void destroy(void* attributes) { delete static_cast<Attributes*>(attributes); }

template <typename T>
void round_all(const Tensor& x, const Tensor& y, int64_t count, int bits) {
    round_significand(static_cast<const T*>(data(x)), static_cast<T*>(data(y)), count, bits);
}

void compute(void* kernel, TF_OpKernelContext* context) {
    const Attributes& attributes = *static_cast<const Attributes*>(kernel);
    Run run(context);
    const Tensor x = run.input(0);
    if (!run.fine()) return;
    const Shape dims = shape(x);
    const Tensor y = run.output_in_place(dims);
    if (!run.fine()) return;
    const auto rounded = attributes.type == TF_HALF ? round_all<uint16_t> : round_all<float>;
    rounded(x, y, size(dims), attributes.bits);
}

void infer(TF_ShapeInferenceContext* context, TF_Status* status) {
    copy_shape(context, 0, 0, status);
}

const bool registered = [] {
    add({"QgraphRoundSignificand",
         {"x: T"},
         {"y: T"},
         {"T: {float, half} = DT_FLOAT", "bits: int >= 1"},
         infer,
         {{std::begin(kTypeNames), std::end(kTypeNames)}, create, compute, destroy}});
    return true;
}();

}  // namespace
}  // namespace qgraph::tf
