// Inputs to codes. Included once by each level.

#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "actor/format.h"
#include "actor/functions.h"

namespace qgraph::actor {
namespace {

constexpr float kSmallest = 0x1p-100f;  // a smaller range counts as 0

// Reduces N numbers to one: f combines the two halves, again and again.
template <int N, class V, class F>
inline auto folded(V v, F f) {
    if constexpr (N == 1) {
        return v[0];
    } else {
        typedef decltype(v[0] + v[0]) Number;
        typedef Number Half __attribute__((vector_size(N / 2 * sizeof(Number))));
        Half halves[2];
        __builtin_memcpy(halves, &v, sizeof v);
        return folded<N / 2>(f(halves[0], halves[1]), f);
    }
}

// The largest and smallest number of a row, compared as bits: signed bits find the largest,
// unsigned bits the smallest negative number. NaN and infinity have larger bits than all other
// numbers.
struct Ends {
    Ints high{};
    Bits low{};

    void add(Ints highs, Bits lows) {
        high = highs > high ? highs : high;
        low = lows > low ? lows : low;
    }
    void add(Vec v) { add((Ints)v, (Bits)v); }
};

inline Ends ends_of(const float* x, int64_t count) {
    Ends ends, others;  // two chains, which hide each other's latency
    int64_t at = 0;
    for (; at + 2 * kWide <= count; at += 2 * kWide) {
        ends.add(load_all(x + at));
        others.add(load_all(x + at + kWide));
    }
    for (; at < count; at += kWide) ends.add(load_first(x + at, count - at));
    ends.add(others.high, others.low);
    return ends;
}

constexpr uint32_t kMinusZero = 0x80000000u;
constexpr float kLargest = 0x1.fffffep127f;

inline Range range(const float* x, int64_t count) {
    const Ends ends = ends_of(x, count);
    const auto more = [](auto a, auto b) { return a > b ? a : b; };
    const int32_t high = folded<kWide>(ends.high, more);
    const uint32_t low = folded<kWide>(ends.low, more);
    float most, least;
    std::memcpy(&most, &high, sizeof most);
    std::memcpy(&least, &low, sizeof least);
    if (low <= kMinusZero) least = 0;
    const float span = most - least;
    if (!(span <= kLargest)) return {__builtin_nanf(""), 0, 0};
    if (span < kSmallest) return {0, 0, 0};
    const float inverse = 255.0f / span;
    const float zero = (-least * inverse + kRounder) - kRounder;
    return {span / 255.0f, inverse, static_cast<int32_t>(zero > 255.0f ? 255.0f : zero)};
}

// The nearest whole numbers, ties to even. Undefined for NaN and infinity.
inline Ints nearest(Vec v) {
#if defined(__AVX512F__)
    return (Ints)_mm512_maskz_cvtps_epi32(0xffff, v);
#elif defined(__AVX2__)
    return (Ints)_mm256_cvtps_epi32(v);
#elif defined(__aarch64__)
    return (Ints)vcvtnq_s32_f32((float32x4_t)v);
#else
    return __builtin_convertvector(Lanes<kWide>::nearest(v), Ints);
#endif
}

// Codes before they are clipped to 0..255.
inline Ints whole_codes(Vec v, Range range) {
    v = v * range.inverse;
#if defined(__AVX2__) || defined(__aarch64__)
    return nearest(v) + range.zero;
#else
    v = Lanes<kWide>::nearest(v) + static_cast<float>(range.zero);
    v = v > 0.0f ? v : all(0);
    return __builtin_convertvector(v < 255.0f ? v : all(255.0f), Ints);
#endif
}

typedef uint8_t Codes __attribute__((vector_size(kWide)));
typedef uint8_t LooseCodes __attribute__((vector_size(kWide), aligned(1), may_alias));

inline void store_codes(uint8_t* to, Ints codes) {
    codes = codes > 0 ? codes : Ints{};
    codes = codes < 255 ? codes : Ints{} + 255;
    *reinterpret_cast<LooseCodes*>(to) = __builtin_convertvector(codes, Codes);
}

// The same for four vectors.
inline void store_codes(uint8_t* to, Ints a, Ints b, Ints c, Ints d) {
#if defined(__AVX512F__)
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i low = _mm512_packs_epi32((__m512i)a, (__m512i)b);
    const __m512i high = _mm512_packs_epi32((__m512i)c, (__m512i)d);
    const __m512i packed = _mm512_packus_epi16(low, high);
    _mm512_storeu_si512(to, _mm512_maskz_permutexvar_epi32(0xffff, order, packed));
#elif defined(__AVX2__)
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i low = _mm256_packs_epi32((__m256i)a, (__m256i)b);
    const __m256i high = _mm256_packs_epi32((__m256i)c, (__m256i)d);
    const __m256i packed = _mm256_packus_epi16(low, high);
    _mm256_storeu_si256((__m256i*)to, _mm256_permutevar8x32_epi32(packed, order));
#elif defined(__aarch64__)
    const auto words = [](Ints first, Ints second) {
        return vqmovn_high_s32(vqmovn_s32((int32x4_t)first), (int32x4_t)second);
    };
    vst1q_u8(to, vqmovun_high_s16(vqmovun_s16(words(a, b)), words(c, d)));
#else
    for (const Ints& codes : {a, b, c, d}) store_codes(to, codes), to += kWide;
#endif
}

inline void quantize(const float* x, int64_t count, Range range, uint8_t* codes) {
    const auto next = [&](int64_t at) { return whole_codes(load_all(x + at), range); };
    int64_t i = 0;
    for (; i + 4 * kWide <= count; i += 4 * kWide) {
        store_codes(codes + i, next(i), next(i + kWide), next(i + 2 * kWide), next(i + 3 * kWide));
    }
    for (; i < count; i += kWide) {
        store_codes(codes + i, whole_codes(load_first(x + i, count - i), range));
    }
}

#if defined(__AVX512F__)
// How a pair of vectors with 2^round rows in each is folded into one: for each result lane the lane
// of its first and of its second operand.
struct Folds {
    int32_t first[4][16], second[4][16];
};

constexpr Folds folds() {
    Folds made{};
    for (int round = 0; round < 4; ++round) {
        const int half = 8 >> round;  // of a row's lanes
        for (int lane = 0; lane < 16; ++lane) {
            const int at =
                lane / half * 2 * half + lane % half;  // 16 and more: in the second vector
            made.first[round][lane] = at;
            made.second[round][lane] = at + half;
        }
    }
    return made;
}

alignas(64) constexpr Folds kFolds = folds();

// Lane i of the result is the largest lane of vector i.
template <int round = 0, class V>
inline V folded_rows(const V* rows) {
    constexpr int pairs = 8 >> round;
    const __m512i first = _mm512_load_si512(kFolds.first[round]);
    const __m512i second = _mm512_load_si512(kFolds.second[round]);
    V found[pairs];
    for (int i = 0; i < pairs; ++i) {
        const auto a = (__m512i)rows[2 * i], b = (__m512i)rows[2 * i + 1];
        const V one = (V)_mm512_permutex2var_epi32(a, first, b);
        const V other = (V)_mm512_permutex2var_epi32(a, second, b);
        found[i] = one > other ? one : other;
    }
    if constexpr (pairs == 1) {
        return found[0];
    } else {
        return folded_rows<round + 1>(found);
    }
}

// `range` for as many rows as a vector has lanes.
inline void ranges_of(const float* x, int64_t size, Range* ranges) {
    Ints highs[kWide];
    Bits lows[kWide];
    for (int i = 0; i < kWide; ++i) {
        const Ends ends = ends_of(x + i * size, size);
        highs[i] = ends.high;
        lows[i] = ends.low;
    }
    const Bits low = folded_rows(lows);
    const Vec least = low > kMinusZero ? (Vec)low : Vec{};
    const Vec span = (Vec)folded_rows(highs) - least;
    const Vec inverse = 255.0f / span, zero = (-least * inverse + kRounder) - kRounder;
    const Ints finite = span <= kLargest, there = finite & (span >= kSmallest);
    const Vec delta = there ? span / 255.0f : finite ? Vec{} : all(__builtin_nanf(""));
    const Ints zeros = __builtin_convertvector(zero > 255.0f ? all(255.0f) : zero, Ints);
    const Ints inverses = (Ints)inverse & there;
    for (int i = 0; i < kWide; ++i) ranges[i] = {delta[i], ((Vec)inverses)[i], (zeros & there)[i]};
}
#endif

void quantize_rows(const float* x, int64_t rows, int64_t size, Range* ranges, uint8_t* codes,
                   int64_t row) {
#if defined(__AVX512F__)
    for (; rows >= kWide; rows -= kWide, ranges += kWide) {
        ranges_of(x, size, ranges);
        for (int i = 0; i < kWide; ++i, x += size, codes += row) {
            quantize(x, size, ranges[i], codes);
        }
    }
#endif
    for (int64_t i = 0; i < rows; ++i, x += size, codes += row) {
        ranges[i] = range(x, size);
        quantize(x, size, ranges[i], codes);
    }
}

}  // namespace
}  // namespace qgraph::actor
