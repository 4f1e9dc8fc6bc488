// Inputs to codes, weights to panels, and the checksum. Included once by each level.

#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "actor/format.h"
#include "actor/functions.h"

namespace qgraph::actor {
namespace {

constexpr float kSmallest = 0x1p-100f;  // range that is not taken for 0

// The one number that is left of N, by halves.
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

// Whether there is a bit.
inline bool any(Bits bits) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)bits, (__m512i)bits) != 0;
#elif defined(__AVX2__)
    return _mm256_testz_si256((__m256i)bits, (__m256i)bits) == 0;
#else
    return folded<kWide>(bits, [](auto a, auto b) { return a | b; }) != 0;
#endif
}

// Comparisons with NaN are false, so that it is none of the ends.
struct Ends {
    Vec low{}, high{};
    Bits bad{};  // not 0 where something was not finite

    void add(Vec v) {
        low = v < low ? v : low;
        high = v > high ? v : high;
        bad |= (Bits)(v - v);
    }
};

inline Range range(const float* x, int64_t count) {
    Ends ends, others;  // so that one's latency hides behind the other's
    int64_t at = 0;
    for (; at + 2 * kWide <= count; at += 2 * kWide) {
        ends.add(load_all(x + at));
        others.add(load_all(x + at + kWide));
    }
    for (; at < count; at += kWide) ends.add(load_first(x + at, count - at));
    ends.add(others.low);
    ends.add(others.high);
    ends.bad |= others.bad;
    const auto less = [](auto a, auto b) { return a < b ? a : b; };
    const auto more = [](auto a, auto b) { return a > b ? a : b; };
    const float least = folded<kWide>(ends.low, less);
    const float span = folded<kWide>(ends.high, more) - least;
    if (any(ends.bad) || span > 0x1.fffffep127f) return {__builtin_nanf(""), 0, 0};
    if (span < kSmallest) return {0, 0, 0};
    const float inverse = 255.0f / span;
    const float zero = (-least * inverse + kRounder) - kRounder;
    return {span / 255.0f, inverse, static_cast<int32_t>(zero > 255.0f ? 255.0f : zero)};
}

// Codes before they are held to 0..255. What is not finite becomes anything.
inline Ints whole_codes(Vec v, Range range) {
    v = v * range.inverse;
#if defined(__AVX512F__)
    return (Ints)_mm512_maskz_cvtps_epi32(0xffff, v) + range.zero;
#elif defined(__AVX2__)
    return (Ints)_mm256_cvtps_epi32(v) + range.zero;
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

// Of four vectors.
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

void quantize_rows(const float* x, int64_t rows, int64_t size, Range* ranges, uint8_t* codes,
                   int64_t row) {
    for (int64_t i = 0; i < rows; ++i, x += size, codes += row) {
        ranges[i] = range(x, size);
        quantize(x, size, ranges[i], codes);
    }
}

// -- weights ------------------------------------------------------------------------------------

struct Kernel {
    const float* weights;
    const Panels& form;

    // Of output channels `channel` on; rows that are not there are zeros.
    Vec row(int64_t segment, int64_t k, int64_t channel) const {
        const int64_t left = form.outputs - channel;
        if (k >= form.length || left <= 0) return Vec{};
        return load_first(weights + (segment * form.length + k) * form.outputs + channel, left);
    }
};

// Channels that are looked at and then packed before the next ones are: weights come from memory
// once, and the second time from a cache.
constexpr int64_t kStrip = 256;
constexpr int64_t kRowsAhead = 8;  // that are fetched before they are looked at

// Channels `begin` to `end`.
struct Strip {
    int64_t begin, end;
};

// The largest magnitude of each channel, as it is or as bits; false where one is not finite.
bool largest(const float* weights, int64_t rows, int64_t outputs, Strip strip, float* top) {
    for (int64_t c = strip.begin; c < strip.end; c += kWide) store_all(top + c, Vec{});
    for (int64_t row = 0; row < rows; ++row) {
        const float* at = weights + row * outputs;
        for (int64_t c = strip.begin; c < strip.end; c += 16) {
            __builtin_prefetch(at + kRowsAhead * outputs + c);
        }
        for (int64_t c = strip.begin; c < std::min(strip.end, outputs); c += kWide) {
            const Vec v = load_first(at + c, outputs - c);
            const Ints size = (Ints)((Bits)v & 0x7fffffffu), before = (Ints)load_all(top + c);
            store_all(top + c, (Vec)(size > before ? size : before));
        }
    }
    return finite(top + strip.begin, strip.end - strip.begin);
}

// Codes of 16 channels of a panel of integers: 4 or 8 values of each in 4 bytes.
template <Storage S>
Bits group(const Kernel& kernel, int64_t segment, int64_t k, int64_t channel, Vec inverse, Vec high,
           Ints& sums) {
    Bits packed{};
    for (int i = 0; i < (S == Storage::int8 ? 4 : 8); ++i) {
        Vec v = Lanes<kWide>::nearest(kernel.row(segment, k + i, channel) * inverse);
        v = held(v, -high, high);
        const Ints codes = __builtin_convertvector(v, Ints);
        sums += codes;
        packed |= S == Storage::int8 ? ((Bits)codes & 255u) << (8 * i)
                                     : ((Bits)codes & 15u) << (i < 4 ? 8 * i : 8 * i - 28);
    }
    return packed;
}

template <Storage S>
void pack_integers(const Kernel& kernel, int top, Strip strip, char* data, const float* inverse,
                   int32_t* sums) {
    const Panels& form = kernel.form;
    constexpr int64_t step = S == Storage::int8 ? 4 : 8;
    const int64_t channels = padded(form.outputs), rows = rows_of(S, form.length);
    const int64_t of_one = bytes_of(S, form.segments, form.length);
    const Vec high = all(static_cast<float>(top));
    std::fill(sums + strip.begin, sums + strip.end, 0);
    // Rows as they lie; of each panel four lines at a time.
    for (int64_t segment = 0; segment < form.segments; ++segment) {
        for (int64_t k = 0; k < rows; k += step) {
            for (int64_t panel = strip.begin; panel < strip.end; panel += kPanel) {
                const int64_t width = channels - panel < kPanel ? channels - panel : kPanel;
                char* to = data + panel * of_one + (segment * rows + k) / step * width * 4;
                for (int64_t c = panel; c < panel + width; c += kWide) {
                    Ints sum = load_ints(sums + c);
                    const Bits packed =
                        group<S>(kernel, segment, k, c, load_all(inverse + c), high, sum);
                    store_ints(sums + c, sum);
                    std::memcpy(to + (c - panel) * 4, &packed, sizeof packed);
                }
            }
        }
    }
}

template <Storage S>
bool pack_floats(const Kernel& kernel, char* data) {
    const Panels& form = kernel.form;
    const int64_t channels = padded(form.outputs), rows = form.segments * form.length;
    const int64_t of_one = bytes_of(S, form.segments, form.length);
    constexpr Type type = S == Storage::float32 ? Type::float32 : Type::float16;
    Ints largest{};
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t panel = 0; panel < channels; panel += kPanel) {
            const int64_t width = channels - panel < kPanel ? channels - panel : kPanel;
            char* to = data + panel * of_one;
            for (int64_t c = 0; c < width; c += kWide) {
                Vec v = kernel.row(0, row, panel + c);
                const Ints size = (Ints)((Bits)v & 0x7fffffffu);
                largest = size > largest ? size : largest;
                if constexpr (type == Type::float16) v = held(v, all(-65504.0f), all(65504.0f));
                store<type, kWide, false>(to, row * width + c, v);
            }
        }
    }
    return finite_sizes(largest);
}

bool pack(const float* weights, const Panels& form, int high, char* data, float* scale,
          int32_t* sums, float* inverse) {
    // Floats have no groups: segments are as good as one.
    Panels rows = form;
    rows.segments = 1;
    rows.length = form.segments * form.length;
    if (form.storage == Storage::float32) {
        return pack_floats<Storage::float32>({weights, rows}, data);
    }
    if (form.storage == Storage::float16) {
        return pack_floats<Storage::float16>({weights, rows}, data);
    }
    const auto top = static_cast<float>(high);
    const Kernel kernel{weights, form};
    const int64_t channels = padded(form.outputs);
    for (Strip strip{0, 0}; strip.begin < channels; strip.begin += kStrip) {
        strip.end = std::min(strip.begin + kStrip, channels);
        if (!largest(weights, rows.length, form.outputs, strip, scale)) return false;
        for (int64_t c = strip.begin; c < strip.end; ++c) {
            const bool there = scale[c] >= kSmallest;
            inverse[c] = there ? top / scale[c] : 0;
            scale[c] = there ? scale[c] / top : 0;
        }
        if (form.storage == Storage::int8) {
            pack_integers<Storage::int8>(kernel, high, strip, data, inverse, sums);
        } else {
            pack_integers<Storage::int4>(kernel, high, strip, data, inverse, sums);
        }
    }
    return true;
}

// -- checksum -----------------------------------------------------------------------------------

typedef uint64_t Longs __attribute__((vector_size(4 * kWide)));
typedef uint64_t LooseLongs __attribute__((vector_size(4 * kWide), aligned(4), may_alias));

// The product of the lower halves.
inline Longs times(Longs a, Longs b) {
#if defined(__AVX512F__)
    return (Longs)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (Longs)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (Longs)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// Each word times (place * kStep + 1) modulo 2^32, summed up modulo 2^64. `bytes` is a multiple of
// 64; the words of the header are as they are.
uint64_t checksum(const void* words, uint64_t bytes) {
    constexpr uint64_t kStep = 0x9E3779B2;
    constexpr int kLongs = kWide / 2;
    Longs sums{}, keys{};
    for (int i = 0; i < kLongs; ++i) keys[i] = static_cast<uint64_t>(i) * 2 * kStep + 1;
    const auto* at = static_cast<const char*>(words);
    for (uint64_t i = 0; i < bytes; i += sizeof(Longs)) {
        const Longs two = *reinterpret_cast<const LooseLongs*>(at + i);
        sums += times(two, keys) + times(two >> 32, keys + kStep);
        keys += kWide * kStep;
    }
    uint64_t sum = 0;
    for (int i = 0; i < kLongs; ++i) sum += sums[i];
    return sum;
}

}  // namespace
}  // namespace qgraph::actor
