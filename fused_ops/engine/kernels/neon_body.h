// Registers of NEON: packing, interleaving and products of 16-bit words. Each level for Arm
// includes this once, after its constants. Weights of words are split in halves (Products in
// layer.h).

#pragma once

#include <arm_neon.h>

#include "core/unrolled.h"
#include "engine/kernels/operands.h"
#include "engine/kernels/unmasked.h"

namespace qgraph::engine::kernels {
namespace {

static_assert(kLanes == 1, "a register of NEON has 128 bits");

// Packs with saturation.
inline Shorts pack_words(Ints a, Ints b) {
    return (Shorts)vqmovn_high_s32(vqmovn_s32((int32x4_t)a), (int32x4_t)b);
}
inline Bytes pack_unsigned(Shorts a, Shorts b) {
    return (Bytes)vqmovun_high_s16(vqmovun_s16((int16x8_t)a), (int16x8_t)b);
}
inline Bytes pack_signed(Shorts a, Shorts b) {
    return (Bytes)vqmovn_high_s16(vqmovn_s16((int16x8_t)a), (int16x8_t)b);
}

inline Shorts add_saturated(Shorts a, Shorts b) {
    return (Shorts)vqaddq_s16((int16x8_t)a, (int16x8_t)b);
}
inline Shorts shift_right(Shorts v, int shift) {
    return (Shorts)vshlq_s16((int16x8_t)v, vdupq_n_s16(static_cast<int16_t>(-shift)));
}

// v & ~bits where (t & rest) is 0, else v.
inline Ints clear_where_none(Ints v, Ints bits, Ints t, Ints rest) {
    const uint32x4_t some = vtstq_s32((int32x4_t)t, (int32x4_t)rest);
    return v & ~(bits & ~(Ints)some);
}
inline Shorts clear_where_none(Shorts v, Shorts bits, Shorts t, Shorts rest) {
    const uint16x8_t some = vtstq_s16((int16x8_t)t, (int16x8_t)rest);
    return v & ~(bits & ~(Shorts)some);
}

template <int vectors>
inline Bytes in_order(Bytes bytes) {
    return bytes;  // there is one lane
}

// The bytes of a and b in turn: the first halves, then the second halves.
struct Zipped {
    uint8x16_t first, second;
    Zipped(Bytes a, Bytes b)
        : first(vzip1q_u8((uint8x16_t)a, (uint8x16_t)b)),
          second(vzip2q_u8((uint8x16_t)a, (uint8x16_t)b)) {}
};

// Sum i of result j gets byte 4 * j + i of each of the four inputs.
inline void interleave(const Bytes* four, Ints* out) {
    const Zipped low(four[0], four[1]), high(four[2], four[3]);
    out[0] = (Ints)vzip1q_u16((uint16x8_t)low.first, (uint16x8_t)high.first);
    out[1] = (Ints)vzip2q_u16((uint16x8_t)low.first, (uint16x8_t)high.first);
    out[2] = (Ints)vzip1q_u16((uint16x8_t)low.second, (uint16x8_t)high.second);
    out[3] = (Ints)vzip2q_u16((uint16x8_t)low.second, (uint16x8_t)high.second);
}

// The same, split in halves.
inline void interleave_split(const Bytes* four, Ints* out) {
    const Zipped low(four[0], four[1]), high(four[2], four[3]);
    out[0] = (Ints)vzip1q_u64((uint64x2_t)low.first, (uint64x2_t)high.first);
    out[1] = (Ints)vzip2q_u64((uint64x2_t)low.first, (uint64x2_t)high.first);
    out[2] = (Ints)vzip1q_u64((uint64x2_t)low.second, (uint64x2_t)high.second);
    out[3] = (Ints)vzip2q_u64((uint64x2_t)low.second, (uint64x2_t)high.second);
}

inline void interleave_words(const Bytes* four, Ints* out) { interleave_split(four, out); }

inline Ints dot_words(Ints sums, Ints codes, Ints weights) {
    const auto c = (int16x8_t)codes, w = (int16x8_t)weights;
    return (Ints)vmlal_high_s16(vmlal_s16((int32x4_t)sums, vget_low_s16(c), vget_low_s16(w)), c, w);
}

// Products of a step with codes of one row, for sums of any channels.
struct WordLanes {
    template <int step>  // of the four whose codes are in `row`
    static Ints add(Ints sums, Ints weights, Ints row) {
        const auto w = (int16x8_t)weights, x = (int16x8_t)row;
        const int32x4_t sum = vmlal_laneq_s16((int32x4_t)sums, vget_low_s16(w), x, 2 * step);
        return (Ints)vmlal_high_laneq_s16(sum, w, x, 2 * step + 1);
    }
    static Ints add_one(Ints sums, Ints weights, const uint8_t* codes) {
        const auto word = [&](int i) { return vdup_n_s16(load<int16_t>(codes + 2 * i)); };
        return dot_words(sums, (Ints)vcombine_s16(word(0), word(1)), weights);
    }
};

// Sums of M rows and N registers of channels. Codes of four steps of a row are loaded at a time.
template <int M, int N, class Lanes>
inline void multiply_lanes(const Operands& o) {
    Ints sums[M][N];
    const uint8_t* rows[M];
    unrolled<M * N>([&](auto i) { sums[i / N][i % N] = load<Ints>(o.start + i % N * kWide); });
    unrolled<M>([&](auto m) { rows[m] = o.a + m * o.row; });
    const int8_t* w = o.w;
    const int64_t steps = o.steps;
    int64_t step = 0;
    for (; step + 4 <= steps; step += 4) {
        Ints codes[M];
        unrolled<M>([&](auto m) { codes[m] = load<Ints>(rows[m] + step * 4); });
        const auto add = [&](auto at, const Ints* weights) __attribute__((always_inline)) {
            unrolled<M * N>([&](auto i) {
                Ints& sum = sums[i / N][i % N];
                sum = Lanes::template add<decltype(at)::value>(sum, weights[i % N], codes[i / N]);
            });
        };
        if constexpr (M <= 2) {
            // One instruction loads four registers. With more rows, too few would be left.
            Ints weights[4 * N];
            unrolled<N>([&](auto n) {
                const int8x16x4_t four = vld1q_s8_x4(w + 4 * n * kRegister);
                unrolled<4>([&](auto i) { weights[4 * n + i] = (Ints)four.val[i]; });
            });
            unrolled<4>([&](auto at) { add(at, weights + at * N); });
        } else {
            unrolled<4>([&](auto at) {
                Ints weights[N];
                unrolled<N>([&](auto n) { weights[n] = load<Ints>(w + (at * N + n) * kRegister); });
                add(at, weights);
            });
        }
        w += 4 * N * kRegister;
    }
    for (; step < steps; ++step, w += N * kRegister) {
        unrolled<M * N>([&](auto i) {
            Ints& sum = sums[i / N][i % N];
            const Ints weights = load<Ints>(w + i % N * kRegister);
            sum = Lanes::add_one(sum, weights, rows[i / N] + step * 4);
        });
    }
    int32_t* to = o.sums;
    const int64_t sums_row = o.sums_row;
    unrolled<M>([&](auto m) {
        unrolled<N>([&](auto n) { store(to + n * kWide, sums[m][n]); });
        to += sums_row;
    });
}

template <int M, int N>
void multiply_words(const Operands& o) {
    multiply_lanes<M, N, WordLanes>(o);
}

}  // namespace
}  // namespace qgraph::engine::kernels
