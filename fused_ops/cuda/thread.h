// Code that the threads of all CUDA kernels share: their place, reads and writes, and the steps of
// quantizers. It also runs on a CPU.
#pragma once

#include <cstdint>

#include "core/quantize_element.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace qgraph {
namespace {

constexpr int kTile = 32;  // columns per thread block
constexpr int kBatch = 4;  // rows that a thread loads before it uses them
constexpr int64_t kMaxChannels = 1 << 29;
constexpr float kMaxExponent = 126;

// The place of a thread. Threads of a block are x (columns) by y (leaves).
struct Place {
    int64_t block;
    int x, y;
    int leaves;  // threads in y
};

// The codes of a quantizer and its thresholds on the device; exponents are bits - ceil(log2_t).
struct Codes {
    const float* log2_t;
    int32_t bits;
    float low, high;
};

// A scale that float32 does not hold becomes NaN, since an error could not be reported without
// waiting for the GPU.
QGRAPH_INLINE Params<Scalar> params_of(const Codes& codes, int64_t channel) {
    const float exponent = static_cast<float>(codes.bits) - ceilf(codes.log2_t[channel]);
    const bool fits = fabsf(exponent) <= kMaxExponent;  // false for NaN
    const auto f = static_cast<int32_t>(fits ? exponent : 0.0f);
    const auto power = [=](int32_t e) {
        return Scalar::value(fits ? static_cast<uint32_t>(127 + e) << 23 : 0x7fc00000u);
    };
    return {power(f), power(-f), codes.low, codes.high};
}

template <Type T>
struct Storage {
    typedef uint16_t Element;
};
template <>
struct Storage<Type::float32> {
    typedef float Element;
};
template <Type T>
using Element = typename Storage<T>::Element;

template <Type T>
QGRAPH_INLINE float widened(Element<T> narrow) {
    if constexpr (T == Type::float32) {
        return narrow;
    } else if constexpr (T == Type::bfloat16) {
        return from_bfloat16<Scalar>(narrow);
    } else {
#ifdef __CUDA_ARCH__
        return __half2float(__ushort_as_half(narrow));
#else
        return from_float16<Scalar>(narrow);
#endif
    }
}

template <Type T>
QGRAPH_INLINE Element<T> narrowed(float v) {
    if constexpr (T == Type::float32) return v;
#ifdef __CUDA_ARCH__
    if constexpr (T == Type::bfloat16) return __bfloat16_as_ushort(__float2bfloat16_rn(v));
    if constexpr (T == Type::float16) return __half_as_ushort(__float2half_rn(v));
#else
    if constexpr (T == Type::bfloat16) return static_cast<uint16_t>(to_bfloat16<Scalar>(v));
    if constexpr (T == Type::float16) return static_cast<uint16_t>(to_float16<Scalar>(v));
#endif
}

// Elements that one thread reads and writes together.
template <Type T, int Vec>
struct alignas(sizeof(Element<T>) * Vec) Pack {
    Element<T> of[Vec];
};

// The `size` elements at `at`. The rest are zeros, which add nothing.
template <Type T, int Vec>
QGRAPH_INLINE Pack<T, Vec> load(const void* from, int64_t at, int64_t size) {
    const Element<T>* place = static_cast<const Element<T>*>(from) + at;
    if (size >= Vec) return *reinterpret_cast<const Pack<T, Vec>*>(place);
    Pack<T, Vec> pack{};
#pragma unroll
    for (int k = 0; k < Vec; ++k) {
        if (k < size) pack.of[k] = place[k];
    }
    return pack;
}

// Written as one word; the compiler would split it.
template <class P>
QGRAPH_INLINE void move(P* to, const P& pack) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(P) == sizeof(uint4)) {
        return __stwb(reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4&>(pack));
    } else if constexpr (sizeof(P) == sizeof(uint2)) {
        return __stwb(reinterpret_cast<uint2*>(to), reinterpret_cast<const uint2&>(pack));
    }
#endif
    *to = pack;
}

template <Type T, int Vec>
QGRAPH_INLINE void store(void* to, int64_t at, int64_t size, const Pack<T, Vec>& pack) {
    Element<T>* place = static_cast<Element<T>*>(to) + at;
    if (size >= Vec) {
        move(reinterpret_cast<Pack<T, Vec>*>(place), pack);
        return;
    }
#pragma unroll
    for (int k = 0; k < Vec; ++k) {
        if (k < size) place[k] = pack.of[k];
    }
}

}  // namespace
}  // namespace qgraph
