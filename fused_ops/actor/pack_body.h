// Packs weights into panels and computes the checksum. Each level includes this once.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>

#include "actor/elementwise_body.h"
#include "actor/format.h"
#include "actor/quantize_body.h"
#include "core/parallel.h"

namespace qgraph::actor {
namespace {

// Channels that one thread measures and then packs.
constexpr int64_t kStrip = 256;
constexpr int64_t kMany = 1 << 20;  // from this many weights on, several threads pack
constexpr int kRows = 4;            // rows measured together
constexpr int kRowsAhead = 8;       // rows prefetched ahead of these

// Channels `begin` to `end`.
struct Strip {
    int64_t begin, end;
};

template <int count>
void look_at(const float* rows, int64_t outputs, Strip strip, float* tops) {
    for (int64_t c = strip.begin; c < std::min(strip.end, outputs); c += kWide) {
        Ints most = (Ints)load_all(tops + c);
        for (int i = 0; i < count; ++i) {
            const float* at = rows + i * outputs + c;
            if constexpr (kWide == 16) __builtin_prefetch(at + kRowsAhead * outputs);
            const Ints size = (Ints)((Bits)load_first(at, outputs - c) & 0x7fffffffu);
            most = size > most ? size : most;
        }
        store_all(tops + c, (Vec)most);
    }
}

// The largest magnitude of each channel; false if a weight is not finite. Magnitudes are compared
// as bits: their order is the same, with infinity and NaN at the end.
bool largest(const float* weights, int64_t rows, int64_t outputs, Strip strip, float* tops) {
    std::fill(tops + strip.begin, tops + strip.end, 0.0f);
    for (; rows >= kRows; rows -= kRows, weights += kRows * outputs) {
        look_at<kRows>(weights, outputs, strip, tops);
    }
    for (; rows > 0; --rows, weights += outputs) look_at<1>(weights, outputs, strip, tops);
    return finite(tops + strip.begin, strip.end - strip.begin);
}

struct Kernel {
    const float* weights;
    const Panels& form;

    // The weights of one row from output channel `channel` on; missing rows are zeros.
    Vec row(int64_t segment, int64_t k, int64_t channel) const {
        const int64_t left = form.outputs - channel;
        if (k >= form.length || left <= 0) return Vec{};
        return load_first(weights + (segment * form.length + k) * form.outputs + channel, left);
    }
};

// Puts four codes (-128 to 127) of each lane into the bytes of that lane.
inline Bits in_bytes(Ints a, Ints b, Ints c, Ints d) {
#if defined(__AVX512F__)
    const __m512i ab = _mm512_packs_epi32((__m512i)a, (__m512i)b);
    const __m512i cd = _mm512_packs_epi32((__m512i)c, (__m512i)d);
    const __m512i order = _mm512_set4_epi32(0x0f0b0703, 0x0e0a0602, 0x0d090501, 0x0c080400);
    return (Bits)_mm512_shuffle_epi8(_mm512_packs_epi16(ab, cd), order);
#elif defined(__AVX2__)
    const __m256i ab = _mm256_packs_epi32((__m256i)a, (__m256i)b);
    const __m256i cd = _mm256_packs_epi32((__m256i)c, (__m256i)d);
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_set_epi32(0x0f0b0703, 0x0e0a0602, 0x0d090501, 0x0c080400));
    return (Bits)_mm256_shuffle_epi8(_mm256_packs_epi16(ab, cd), order);
#else
    const auto byte = [](Ints v) { return (Bits)v & 255u; };
    return byte(a) | byte(b) << 8 | byte(c) << 16 | byte(d) << 24;
#endif
}

// Quantizes four rows (fewer at the end) of one vector of channels. |w| * inverse exceeds the
// largest code by at most half a unit in the last place, so no code leaves its range.
inline Bits four_rows(const Kernel& kernel, int64_t segment, int64_t k, int64_t channel,
                      Vec inverse, Ints& sums) {
    const Panels& form = kernel.form;
    Ints codes[4];
    if (k + 4 <= form.length && channel + kWide <= form.outputs) {
        const float* at = kernel.weights + (segment * form.length + k) * form.outputs + channel;
        for (int i = 0; i < 4; ++i) codes[i] = nearest(load_all(at + i * form.outputs) * inverse);
    } else {
        for (int i = 0; i < 4; ++i) {
            codes[i] = nearest(kernel.row(segment, k + i, channel) * inverse);
        }
    }
    const Bits packed = in_bytes(codes[0], codes[1], codes[2], codes[3]);
#if defined(__AVX512VNNI__)
    const __m512i ones = _mm512_set1_epi8(1);
    sums = (Ints)_mm512_dpbusd_epi32((__m512i)sums, ones, (__m512i)packed);
#else
    sums += codes[0] + codes[1] + codes[2] + codes[3];
#endif
    return packed;
}

// Codes of one vector of channels: 4 or 8 values of each channel in 4 bytes.
template <Storage S>
Bits group(const Kernel& kernel, int64_t segment, int64_t k, int64_t channel, Vec inverse,
           Ints& sums) {
    const Bits first = four_rows(kernel, segment, k, channel, inverse, sums);
    if constexpr (S == Storage::int8) return first;
    const Bits second = four_rows(kernel, segment, k + 4, channel, inverse, sums);
    return (first & 0x0f0f0f0fu) | (second & 0x0f0f0f0fu) << 4;
}

template <Storage S>
void pack_integers(const Kernel& kernel, Strip strip, char* data, const float* inverse,
                   int32_t* sums) {
    const Panels& form = kernel.form;
    constexpr int64_t step = S == Storage::int8 ? 4 : 8;
    const int64_t channels = padded(form.outputs), rows = rows_of(S, form.length);
    const int64_t of_one = bytes_of(S, form.segments, form.length);
    std::fill(sums + strip.begin, sums + strip.end, 0);
    // Reads rows in memory order and writes four lines of each panel at a time.
    for (int64_t segment = 0; segment < form.segments; ++segment) {
        for (int64_t k = 0; k < rows; k += step) {
            for (int64_t panel = strip.begin; panel < strip.end; panel += kPanel) {
                const int64_t width = channels - panel < kPanel ? channels - panel : kPanel;
                char* to = data + panel * of_one + (segment * rows + k) / step * width * 4;
                for (int64_t c = panel; c < panel + width; c += kWide) {
                    Ints sum = load_ints(sums + c);
                    const Bits packed = group<S>(kernel, segment, k, c, load_all(inverse + c), sum);
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
    // Floats are not grouped, so all segments can be treated as one.
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
    std::atomic<bool> good{true};
    const int64_t strips = (channels + kStrip - 1) / kStrip;
    const int64_t wanted = channels * rows.length >= kMany ? strips : 1;
    parallel_tasks(strips, wanted, [&](int64_t i) {
        const Strip strip{i * kStrip, std::min((i + 1) * kStrip, channels)};
        if (!largest(weights, rows.length, form.outputs, strip, scale)) good = false;
        if (!good) return;
        for (int64_t c = strip.begin; c < strip.end; ++c) {
            const bool there = scale[c] >= kSmallest;
            inverse[c] = there ? top / scale[c] : 0;
            scale[c] = there ? scale[c] / top : 0;
        }
        if (form.storage == Storage::int8) {
            pack_integers<Storage::int8>(kernel, strip, data, inverse, sums);
        } else {
            pack_integers<Storage::int4>(kernel, strip, data, inverse, sums);
        }
    });
    return good;
}

// -- checksum -----------------------------------------------------------------------------------

typedef uint64_t Longs __attribute__((vector_size(4 * kWide)));
typedef uint64_t LooseLongs __attribute__((vector_size(4 * kWide), aligned(4), may_alias));

// The products of the lower 32 bits of each 64-bit lane.
inline Longs times(Longs a, Longs b) {
#if defined(__AVX512F__)
    return (Longs)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (Longs)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (Longs)_mm_mul_epu32((__m128i)a, (__m128i)b);
#elif defined(__aarch64__)
    return (Longs)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b));
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// The sum modulo 2^64 of each word times (place * kStep + 1) modulo 2^32: checksums of parts can be
// added. `bytes` is a multiple of 64; the words of the header are used unchanged.
uint64_t checksum(const void* words, uint64_t bytes, uint64_t first) {
    constexpr uint64_t kStep = 0x9E3779B2;
    constexpr int kLongs = kWide / 2;
    Longs sums{}, keys{};
    for (int i = 0; i < kLongs; ++i) keys[i] = (first + static_cast<uint64_t>(i) * 2) * kStep + 1;
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
