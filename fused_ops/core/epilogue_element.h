// The epilogue's arithmetic for one number or a vector. Like quantize_element.h, it is one source
// for all instruction sets and for CUDA.
#pragma once

#include "core/epilogue.h"
#include "core/quantize_element.h"

namespace qgraph {
namespace {

template <class Ops>
struct Stage {
    Params<Ops> inner, outer;
};

// The values after the bias, after the maximum with 0, and before the outer quantizer.
template <class Ops>
struct Activated {
    typename Ops::Value z, positive, v;
};

// Comparisons with NaN are false, so NaN stays NaN.
template <Rounding R, Activation A, class Ops>
QGRAPH_INLINE Activated<Ops> activated(typename Ops::Value x, typename Ops::Value bias,
                                       typename Ops::Value high, const Params<Ops>& inner) {
    typedef typename Ops::Value Value;
    const Value z = quantized<R, Ops>(x, inner) + bias;
    Value positive = z;
    if constexpr (A != Activation::none) positive = z < 0.0f ? Value{} : z;
    Value v = positive;
    if constexpr (A == Activation::clip) v = positive > high ? high : positive;
    return {z, positive, v};
}

// gz is the gradient of the bias, clipped that of high.
template <class Ops>
struct StageGradient {
    typename Ops::Value gx, gz, clipped, inner_slope, outer_slope;
};

// Gradients pass the clip up to `last`.
template <Rounding R, Activation A, class Ops>
QGRAPH_INLINE StageGradient<Ops> stage_gradient(typename Ops::Value x, typename Ops::Value g,
                                                typename Ops::Value bias, typename Ops::Value high,
                                                typename Ops::Value last, const Stage<Ops>& stage) {
    typedef typename Ops::Value Value;
    const Activated<Ops> at = activated<R, A, Ops>(x, bias, high, stage.inner);
    const Gradient<Ops> outer = gradient<R, Ops>(at.v, g, stage.outer);
    Value gz = outer.gx;
    Value clipped{};
    if constexpr (A == Activation::clip) {
        const auto passes = at.positive <= last;
        clipped = passes ? Value{} : gz;
        gz = passes ? gz : Value{};
    }
    if constexpr (A != Activation::none) gz = at.z > 0.0f ? gz : Value{};
    const Gradient<Ops> inner = gradient<R, Ops>(x, gz, stage.inner);
    return {inner.gx, gz, clipped, inner.slope, outer.slope};
}

}  // namespace
}  // namespace qgraph
