// Replaces the compiler's header in builds that emulate AVX-512 (QGRAPH_EMULATE_AVX512), so that
// its kernels run, slowly, on any CPU with AVX2. SIMDe emulates most instructions; those that SIMDe
// 0.7.4 lacks are below.
#pragma once

#include_next <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
// Defined after the headers above, which would otherwise use AVX-512 themselves.
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1
#define __AVX512VBMI__ 1
#define __AVX512VNNI__ 1

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tiles.h"

namespace emulated {

template <class T>
struct Register {
    static constexpr int kLanes = 64 / sizeof(T);
    T lanes[kLanes];

    template <class V>
    static Register of(V v) {
        static_assert(sizeof(V) == 64);
        Register found;
        std::memcpy(&found, &v, 64);
        return found;
    }
    template <class V>
    V as() const {
        V v;
        std::memcpy(&v, this, 64);
        return v;
    }
};

template <class T>
__m512i load(uint64_t mask, const void* from) {
    Register<T> found{};
    for (int i = 0; i < found.kLanes; ++i) {
        if (mask >> i & 1)
            std::memcpy(&found.lanes[i], (const char*)from + i * sizeof(T), sizeof(T));
    }
    return found.template as<__m512i>();
}

template <class T, class V>
void store(void* to, uint64_t mask, V v) {
    const auto given = Register<T>::of(v);
    for (int i = 0; i < given.kLanes; ++i) {
        if (mask >> i & 1) std::memcpy((char*)to + i * sizeof(T), &given.lanes[i], sizeof(T));
    }
}

template <class T>
uint64_t none(__m512i a, __m512i b) {
    const auto x = Register<T>::of(a), y = Register<T>::of(b);
    uint64_t mask = 0;
    for (int i = 0; i < x.kLanes; ++i) mask |= uint64_t((x.lanes[i] & y.lanes[i]) == 0) << i;
    return mask;
}

inline __m512i subtract(__m512i from, __mmask32 mask, __m512i a, __m512i b) {
    auto found = Register<uint16_t>::of(from);
    const auto x = Register<uint16_t>::of(a), y = Register<uint16_t>::of(b);
    for (int i = 0; i < 32; ++i) {
        if (mask >> i & 1) found.lanes[i] = uint16_t(x.lanes[i] - y.lanes[i]);
    }
    return found.as<__m512i>();
}

inline __m512d fused(__m512d a, __m512d b, __m512d c) {
    auto found = Register<double>::of(c);
    const auto x = Register<double>::of(a), y = Register<double>::of(b);
    for (int i = 0; i < 8; ++i) found.lanes[i] = std::fma(x.lanes[i], y.lanes[i], found.lanes[i]);
    return found.as<__m512d>();
}

inline __m512d doubles(__m256 v) {
    float given[8];
    std::memcpy(given, &v, 32);
    Register<double> found;
    for (int i = 0; i < 8; ++i) found.lanes[i] = given[i];
    return found.as<__m512d>();
}

// AVX converts eight numbers at a time, in the rounding mode of the CPU.
inline __m512 floats(__m256i halves) {
    const __m256 parts[2] = {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                             _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
    __m512 found;
    std::memcpy(&found, parts, 64);
    return found;
}

inline __m256i halves(__m512 v) {
    __m256 parts[2];
    std::memcpy(parts, &v, 64);
    return _mm256_set_m128i(_mm256_cvtps_ph(parts[1], 0), _mm256_cvtps_ph(parts[0], 0));
}

inline __m512i nearest(__m512 v) {
    __m256 parts[2];
    std::memcpy(parts, &v, 64);
    const __m256i both[2] = {_mm256_cvtps_epi32(parts[0]), _mm256_cvtps_epi32(parts[1])};
    __m512i found;
    std::memcpy(&found, both, 64);
    return found;
}

template <int how>
__m512 rounded(__m512 v) {
    __m256 parts[2];
    std::memcpy(parts, &v, 64);
    for (__m256& part : parts) part = _mm256_round_ps(part, how | _MM_FROUND_NO_EXC);
    std::memcpy(&v, parts, 64);
    return v;
}

}  // namespace emulated

#define _mm512_maskz_loadu_epi8(mask, from) emulated::load<uint8_t>(mask, from)
#define _mm512_maskz_loadu_ps(mask, from) \
    emulated::Register<float>::of(emulated::load<float>(mask, from)).as<__m512>()
#define _mm512_mask_storeu_epi8(to, mask, v) emulated::store<uint8_t>(to, mask, v)
#define _mm512_mask_storeu_ps(to, mask, v) emulated::store<float>(to, mask, v)
#define _mm512_testn_epi16_mask(a, b) emulated::none<uint16_t>(a, b)
#define _mm512_testn_epi32_mask(a, b) emulated::none<uint32_t>(a, b)
#define _mm512_mask_sub_epi16(from, mask, a, b) emulated::subtract(from, mask, a, b)
#define _mm512_maskz_cvtps_pd(mask, v) emulated::doubles(v)
#define _mm512_maskz_cvtph_ps(mask, v) emulated::floats(v)
#define _mm512_maskz_cvtps_ph(mask, v, how) emulated::halves(v)
#define _mm512_maskz_cvtps_epi32(mask, v) emulated::nearest(v)
#undef _mm512_maskz_roundscale_ps
#define _mm512_maskz_roundscale_ps(mask, v, how) emulated::rounded<how>(v)
#undef _mm512_fmadd_pd  // SIMDe's version rounds twice
#define _mm512_fmadd_pd(a, b, c) emulated::fused(a, b, c)
#define _mm512_stream_si512(to, v) emulated::store<uint8_t>(to, ~uint64_t{0}, v)
