// Vectors of the instruction set that a file is compiled for. Everything is private to that file
// and uses no inline function from elsewhere. Otherwise the linker might keep a copy that was
// compiled for another CPU.
#pragma once

#include "core/quantize_element.h"

#ifdef __x86_64__
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace qgraph {
namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif
constexpr int kVectors = 2;  // computed together, so that they hide each other's latency

template <int N>
struct Vector {
    typedef float Floats __attribute__((vector_size(4 * N)));
    typedef uint32_t Bits __attribute__((vector_size(4 * N)));
    typedef uint16_t Halves __attribute__((vector_size(2 * N)));
    typedef double Doubles __attribute__((vector_size(8 * N)));
    typedef double UnalignedDoubles __attribute__((vector_size(8 * N), aligned(8), may_alias));
    typedef float Unaligned __attribute__((vector_size(4 * N), aligned(4), may_alias));
    typedef uint16_t UnalignedHalves __attribute__((vector_size(2 * N), aligned(2), may_alias));
};
template <int N>
using Floats = typename Vector<N>::Floats;

// Turns off the flushing of subnormal numbers to zero, which TensorFlow's threads turn on.
class IeeeArithmetic {
  public:
#ifdef __SSE2__
    IeeeArithmetic() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~IeeeArithmetic() { _mm_setcsr(saved_); }

  private:
    unsigned saved_;
#elif defined(__aarch64__)
    IeeeArithmetic() {
        __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
        if (saved_ != 0) set(0);
    }
    ~IeeeArithmetic() {
        if (saved_ != 0) set(saved_);
    }

  private:
    static void set(uint64_t control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }
    uint64_t saved_;
#else
    IeeeArithmetic() {}
#endif
};

// `Ops` of quantize_element.h for N floats.
template <int N>
struct Lanes {
    typedef Floats<N> Value;
    typedef typename Vector<N>::Bits Bits;

    static Bits bits(Value v) { return (Bits)v; }
    static Value value(Bits bits) { return (Value)bits; }
    static Value absolute(Value v) { return value(bits(v) & 0x7fffffffu); }

    static Value nearest(Value v) {
#ifdef __AVX512F__
        if constexpr (N == 16) return _mm512_maskz_roundscale_ps(0xffff, v, 0);
#endif
#ifdef __AVX__
        if constexpr (N == 8) {
            return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        }
#endif
#ifdef __aarch64__
        if constexpr (N == 4) return (Value)vrndnq_f32((float32x4_t)v);
#endif
        // From 2^23 on every float is a whole number, so adding 2^23 removes the fraction.
        const Value size = absolute(v);
        const Value whole = (size + 8388608.0f) - 8388608.0f;
        return size < 8388608.0f ? (v < 0.0f ? -whole : whole) : v;
    }

    static Value down(Value v) {
#ifdef __AVX512F__
        if constexpr (N == 16) return _mm512_maskz_roundscale_ps(0xffff, v, 1);
#endif
#ifdef __AVX__
        if constexpr (N == 8) {
            return _mm256_round_ps(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        }
#endif
#ifdef __aarch64__
        if constexpr (N == 4) return (Value)vrndmq_f32((float32x4_t)v);
#endif
        const Value whole = nearest(v);
        return whole > v ? whole - 1.0f : whole;
    }
};

template <Type T, int N>
inline Floats<N> widened(typename Vector<N>::Halves narrow) {
    if constexpr (T == Type::float16) {
#ifdef __AVX512F__
        if constexpr (N == 16) return _mm512_maskz_cvtph_ps(0xffff, (__m256i)narrow);
#endif
#ifdef __F16C__
        if constexpr (N == 8) return _mm256_cvtph_ps((__m128i)narrow);
#endif
#ifdef __aarch64__
        if constexpr (N == 4) return (Floats<N>)vcvt_f32_f16((float16x4_t)narrow);
#endif
    }
    const auto bits = __builtin_convertvector(narrow, typename Vector<N>::Bits);
    return T == Type::float16 ? from_float16<Lanes<N>>(bits) : from_bfloat16<Lanes<N>>(bits);
}

template <Type T, int N>
inline typename Vector<N>::Halves narrowed(Floats<N> v) {
    typedef typename Vector<N>::Halves Halves;
    if constexpr (T == Type::float16) {
#ifdef __AVX512F__
        if constexpr (N == 16) return (Halves)_mm512_maskz_cvtps_ph(0xffff, v, 0);
#endif
#ifdef __F16C__
        if constexpr (N == 8) return (Halves)_mm256_cvtps_ph(v, 0);
#endif
#ifdef __aarch64__
        if constexpr (N == 4) return (Halves)vcvt_f16_f32((float32x4_t)v);
#endif
        return __builtin_convertvector(to_float16<Lanes<N>>(v), Halves);
    } else {
        return __builtin_convertvector(to_bfloat16<Lanes<N>>(v), Halves);
    }
}

template <Type T, int N>
inline Floats<N> load(const void* from, int64_t at) {
    if constexpr (T == Type::float32) {
        return *reinterpret_cast<const typename Vector<N>::Unaligned*>(
            static_cast<const float*>(from) + at);
    } else {
        return widened<T, N>(*reinterpret_cast<const typename Vector<N>::UnalignedHalves*>(
            static_cast<const uint16_t*>(from) + at));
    }
}

// Stores a vector past the caches; false if the CPU has no such instruction.
template <class V>
inline bool stream([[maybe_unused]] void* to, [[maybe_unused]] V value) {
#ifdef __AVX512F__
    if constexpr (sizeof(V) == 64) return _mm512_stream_si512((__m512i*)to, (__m512i)value), true;
#endif
#ifdef __AVX__
    if constexpr (sizeof(V) == 32) return _mm256_stream_si256((__m256i*)to, (__m256i)value), true;
#endif
#ifdef __SSE2__
    if constexpr (sizeof(V) == 16) return _mm_stream_si128((__m128i*)to, (__m128i)value), true;
#endif
    return false;
}

template <Type T, int N, bool Stream>
inline void store(void* to, int64_t at, Floats<N> v) {
    if constexpr (T == Type::float32) {
        float* place = static_cast<float*>(to) + at;
        if (Stream && stream(place, v)) return;
        *reinterpret_cast<typename Vector<N>::Unaligned*>(place) = v;
    } else {
        uint16_t* place = static_cast<uint16_t*>(to) + at;
        const typename Vector<N>::Halves narrow = narrowed<T, N>(v);
        if (Stream && stream(place, narrow)) return;
        *reinterpret_cast<typename Vector<N>::UnalignedHalves*>(place) = narrow;
    }
}

inline void finish_streams() {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

// Sums in double for N floats, in as many vectors as needed.
template <int N>
struct Sums {
    static constexpr int kPart = N < kWidth / 2 ? N : (kWidth / 2);
    typedef typename Vector<kPart>::Doubles Doubles;
    Doubles parts[N / kPart] = {};

    void add(Floats<N> a, Floats<N> b) {
        for (int i = 0; i < N / kPart; ++i) parts[i] = sum(doubled(a, i), doubled(b, i), parts[i]);
    }

    // a * b + c. The product of two 24-bit significands fits into 53 bits, so fusing changes no
    // result.
    static Doubles sum(Doubles a, Doubles b, Doubles c) {
#ifdef __AVX512F__
        if constexpr (kPart == 8) return _mm512_fmadd_pd(a, b, c);
#endif
#ifdef __FMA__
        if constexpr (kPart == 4) return _mm256_fmadd_pd(a, b, c);
#endif
        return a * b + c;
    }

    static Doubles doubled(Floats<N> v, int i) {
#ifdef __AVX512F__
        if constexpr (N == 16) {
            __m256d half = _mm512_maskz_extractf64x4_pd(0xff, _mm512_castps_pd(v), 1);
            if (i == 0) __builtin_memcpy(&half, &v, sizeof(half));
            return _mm512_maskz_cvtps_pd(0xff, _mm256_castpd_ps(half));
        }
#endif
#ifdef __AVX__
        if constexpr (N == 8 && kPart == 4) {
            return _mm256_cvtps_pd(i == 0 ? _mm256_castps256_ps128(v)
                                          : _mm256_extractf128_ps(v, 1));
        }
#endif
#ifdef __aarch64__
        if constexpr (N == 4) {
            const auto floats = (float32x4_t)v;
            return (Doubles)(i == 0 ? vcvt_f64_f32(vget_low_f32(floats))
                                    : vcvt_high_f64_f32(floats));
        }
#endif
        Doubles result{};
        for (int k = 0; k < kPart; ++k) result[k] = v[i * kPart + k];
        return result;
    }

    void add_to(double* sums) const {
        typedef typename Vector<kPart>::UnalignedDoubles To;
        for (int i = 0; i < N / kPart; ++i) reinterpret_cast<To*>(sums)[i] += parts[i];
    }
};

}  // namespace
}  // namespace qgraph
