// Vectors of the level's width, and loads and stores of the incomplete vector at the end of a row.

#pragma once

#include "actor/kernels.h"
#include "core/vectors.h"

namespace qgraph::actor {
namespace {

constexpr int kWide = kWidth;
typedef Floats<kWide> Vec;
typedef Vector<kWide>::Bits Bits;
typedef int32_t Ints __attribute__((vector_size(4 * kWide)));
typedef int32_t LooseInts __attribute__((vector_size(4 * kWide), aligned(4), may_alias));
typedef float LooseFloats __attribute__((vector_size(4 * kWide), aligned(4), may_alias));

inline Vec load_all(const float* from) { return *reinterpret_cast<const LooseFloats*>(from); }
inline void store_all(float* to, Vec v) { *reinterpret_cast<LooseFloats*>(to) = v; }

inline Ints load_ints(const int32_t* from) { return *reinterpret_cast<const LooseInts*>(from); }
inline void store_ints(int32_t* to, Ints v) { *reinterpret_cast<LooseInts*>(to) = v; }

// The first `count` numbers, then zeros.
inline Vec load_first(const float* from, int64_t count) {
    if (count >= kWide) return load_all(from);
#ifdef __AVX512F__
    const auto mask = static_cast<__mmask16>((1u << count) - 1);
    return _mm512_maskz_loadu_ps(mask, from);
#else
    Vec v{};
    for (int64_t i = 0; i < count; ++i) v[i] = from[i];
    return v;
#endif
}

inline void store_first(float* to, Vec v, int64_t count) {
    if (count >= kWide) return store_all(to, v);
#ifdef __AVX512F__
    const auto mask = static_cast<__mmask16>((1u << count) - 1);
    _mm512_mask_storeu_ps(to, mask, v);
#else
    for (int64_t i = 0; i < count; ++i) to[i] = v[i];
#endif
}

inline Vec all(float value) { return Vec{} + value; }

// y[i] = f(x[i], i), a vector at a time.
template <class F>
inline void each(const float* x, float* y, int64_t count, F f) {
    for (int64_t i = 0; i < count; i += kWide) {
        store_first(y + i, f(load_first(x + i, count - i), i, count - i), count - i);
    }
}

}  // namespace
}  // namespace qgraph::actor
