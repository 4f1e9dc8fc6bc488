// The attributes and inputs of QgraphQuantize and QgraphQuantizeGrad, on any device.
#pragma once

#include "tf/kernel.h"

namespace qgraph::tf::quantize_op {

// In the order of qgraph::Type.
constexpr TF_DataType kTypeNames[kTypes] = {TF_FLOAT, TF_BFLOAT16, TF_HALF};

struct Attributes {
    Levels levels;
    Rounding rounding = Rounding::half_even;
    Type type = Type::float32;
};

inline void* create(TF_OpKernelConstruction* construction) {
    auto attributes = std::make_unique<Attributes>();
    TF_DataType type = TF_FLOAT;
    Reader reader(construction);
    reader.read("bits", &attributes->levels.bits);
    reader.read("offset", &attributes->levels.offset);
    reader.read("signed", &attributes->levels.is_signed);
    reader.read("rounding", kRoundingNames, &attributes->rounding);
    reader.read("T", &type);
    if (!reader.done()) return nullptr;
    for (int i = 0; i < kTypes; ++i) {
        if (type == kTypeNames[i]) attributes->type = static_cast<Type>(i);
    }
    return attributes.release();
}

inline void destroy(void* attributes) { delete static_cast<Attributes*>(attributes); }

inline Kernel kernel(Compute compute) {
    return {{kTypeNames, kTypeNames + kTypes}, create, compute, destroy};
}

// The inputs of QgraphQuantizeGrad. An error if g has another shape than x.
struct GradientInputs {
    explicit GradientInputs(Run& run) : g(run.input(0)), x(run.input(1)), log2_t(run.input(2)) {
        if (run.fine()) dims = shape(x);
        run.check_gradient(g, dims);
    }

    const Tensor g, x, log2_t;
    Shape dims;
};

}  // namespace qgraph::tf::quantize_op
