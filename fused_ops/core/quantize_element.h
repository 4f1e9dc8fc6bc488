// The quantizer's arithmetic for one number or a vector: one source for all instruction sets and
// for CUDA. `Ops` provides the operations that C++ has no operator for:
//   Value, Bits               a float and a uint32_t, or vectors of them
//   nearest, down, absolute   of a Value, to whole numbers: ties to even, downwards
//   bits, value               reinterpret the bits as the other type
// Everything is private to the file that includes it. Otherwise the linker might keep a copy that
// was compiled for another CPU.
#pragma once

#include <math.h>

#include <cstdint>

#include "core/quantize.h"

#ifdef __CUDACC__
#define QGRAPH_INLINE __host__ __device__ __forceinline__
#else
#define QGRAPH_INLINE inline
#endif

namespace qgraph {
namespace {

template <class Ops>
struct Params {
    typename Ops::Value scale, step, low, high;  // 2^f, 2^-f
};

template <class Ops>
QGRAPH_INLINE typename Ops::Value nearest_up(typename Ops::Value v) {
    const typename Ops::Value whole = Ops::down(v);
    return v - whole >= 0.5f ? whole + 1.0f : whole;
}

// v = x * 2^f, rounded to a whole number.
template <Rounding R, class Ops>
QGRAPH_INLINE typename Ops::Value rounded(typename Ops::Value v, typename Ops::Value x) {
    typedef typename Ops::Value Value;
    if constexpr (R == Rounding::half_even) {
        return Ops::nearest(v);
    } else if constexpr (R == Rounding::half_up) {
        return nearest_up<Ops>(v);
    } else if constexpr (R == Rounding::half_away || R == Rounding::double_) {
        const Value size = nearest_up<Ops>(Ops::absolute(v));
        return v < 0.0f ? -size : size;
    } else {
        // The product of a negative number may have underflowed to zero.
        return ((v == 0.0f) & (x < 0.0f)) ? Value{} - 1.0f : Ops::down(v);
    }
}

template <Rounding R, class Ops>
QGRAPH_INLINE typename Ops::Value quantized(typename Ops::Value x, const Params<Ops>& q) {
    typedef typename Ops::Value Value;
    const Value r = rounded<R, Ops>(x * q.scale, x);
    const Value code = r < q.low ? q.low : (r > q.high ? q.high : r);  // both false for NaN
    return code * q.step + 0.0f;                                       // + 0 turns -0 into +0
}

// d loss / d x, and the factor of g in d loss / d log2_t.
template <class Ops>
struct Gradient {
    typename Ops::Value gx, slope;
};

template <Rounding R, class Ops>
QGRAPH_INLINE Gradient<Ops> gradient(typename Ops::Value x, typename Ops::Value g,
                                     const Params<Ops>& q) {
    typedef typename Ops::Value Value;
    const Value v = x * q.scale;
    const Value r = rounded<R, Ops>(v, x);
    const Value least = r < q.low ? q.low : r;
    const Value code = least > q.high ? q.high : least;
    // Bits are compared, so that a NaN is inside.
    const auto inside = Ops::bits(code) == Ops::bits(r);
    return {inside ? g : Value{}, inside ? r - v : code};
}

// Conversions of the narrow types without instructions for them. Conversion to a narrow type rounds
// to the nearest, ties to even, and makes every NaN quiet.

template <class Ops>
QGRAPH_INLINE typename Ops::Value from_bfloat16(typename Ops::Bits narrow) {
    return Ops::value(narrow << 16);
}

template <class Ops>
QGRAPH_INLINE typename Ops::Bits to_bfloat16(typename Ops::Value v) {
    typedef typename Ops::Bits Bits;
    const Bits bits = Ops::bits(v);
    const Bits nearest = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return v != v ? Bits{} + 0x7fc0u : nearest;
}

template <class Ops>
QGRAPH_INLINE typename Ops::Value from_float16(typename Ops::Bits narrow) {
    typedef typename Ops::Bits Bits;
    const Bits size = (narrow & 0x7fffu) << 13;
    const Bits number = Ops::bits(Ops::value(size) * 0x1p112f);
    const Bits wide = size >= 0x0f800000u ? (size | 0x7f800000u) : number;  // infinities and NaN
    return Ops::value(wide | (narrow & 0x8000u) << 16);
}

template <class Ops>
QGRAPH_INLINE typename Ops::Bits to_float16(typename Ops::Value v) {
    typedef typename Ops::Bits Bits;
    const Bits bits = Ops::bits(v);
    const Bits size = bits & 0x7fffffffu;
    const Bits normal = (size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13;
    // Adding 0.5 rounds to the subnormal numbers of float16: both have the same last place there.
    const Bits subnormal = Ops::bits(Ops::value(size) + 0.5f) - 0x3f000000u;
    const Bits finite = size < 0x38800000u ? subnormal : normal;
    const Bits all = size >= 0x477ff000u ? Bits{} + 0x7c00u : finite;
    return (size > 0x7f800000u ? Bits{} + 0x7e00u : all) | (bits >> 16 & 0x8000u);
}

// `Ops` for one number, on a CPU or a GPU.
struct Scalar {
    typedef float Value;
    typedef uint32_t Bits;
    static QGRAPH_INLINE float nearest(float v) { return rintf(v); }
    static QGRAPH_INLINE float down(float v) { return floorf(v); }
    static QGRAPH_INLINE float absolute(float v) { return fabsf(v); }
    static QGRAPH_INLINE uint32_t bits(float v) {
        uint32_t bits;
        __builtin_memcpy(&bits, &v, sizeof bits);
        return bits;
    }
    static QGRAPH_INLINE float value(uint32_t bits) {
        float v;
        __builtin_memcpy(&v, &bits, sizeof v);
        return v;
    }
};

}  // namespace
}  // namespace qgraph
