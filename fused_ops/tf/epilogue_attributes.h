// The attributes and shapes of QgraphEpilogue and QgraphEpilogueGrad, on any device.
#pragma once

#include "core/epilogue.h"
#include "tf/kernel.h"

namespace qgraph::tf::epilogue_op {

enum class Kind { none, relu, relu6, clip };
constexpr const char* kKinds[] = {"none", "relu", "relu6", "clip"};

struct Attributes {
    Levels inner, outer;
    Rounding rounding = Rounding::half_even;
    Kind kind = Kind::none;

    bool clips() const { return kind == Kind::clip || kind == Kind::relu6; }
    Activation activation() const {
        if (clips()) return Activation::clip;
        return kind == Kind::relu ? Activation::relu : Activation::none;
    }
};

inline void* create(TF_OpKernelConstruction* construction) {
    auto attributes = std::make_unique<Attributes>();
    Reader reader(construction);
    reader.read("inner_bits", &attributes->inner.bits);
    reader.read("inner_signed", &attributes->inner.is_signed);
    reader.read("bits", &attributes->outer.bits);
    reader.read("signed", &attributes->outer.is_signed);
    reader.read("rounding", kRoundingNames, &attributes->rounding);
    reader.read("activation", kKinds, &attributes->kind);
    return reader.done() ? attributes.release() : nullptr;
}

inline void destroy(void* attributes) { delete static_cast<Attributes*>(attributes); }

inline Kernel kernel(Compute compute) { return {{}, create, compute, destroy}; }

// The error in the shapes, or null.
inline const char* wrong(const Attributes& attributes, const Shape& x, const Shape& bias,
                         const Shape& high) {
    if (x.empty() || bias != Shape{x.back()}) {
        return "bias must have the shape of the last axis of x";
    }
    if (high != Shape{attributes.clips() ? x.back() : 0}) {
        return "high must have the shape of bias for relu6 and clip, and be empty otherwise";
    }
    return nullptr;
}

}  // namespace qgraph::tf::epilogue_op
