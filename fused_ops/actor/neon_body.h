// Products of integers with NEON, for levels that have it. A level gives them a Form for each
// storage: how registers of 16 bytes are multiplied.
//   kMostSums                   sums that fit into registers; a Sum is for four channels
//   weights(bytes)              weights of a step, four bytes of each channel
//   codes<step>(row)            codes of a step from 16 bytes of a row
//   add<step>(sum, weights, codes)
//   total(sum)

#pragma once

#include <arm_neon.h>

#include <cstring>

#include "actor/format.h"
#include "actor/tile.h"
#include "actor/vectors.h"
#include "core/unrolled.h"

namespace qgraph::actor {
namespace {

constexpr int kCodesMinus = 128;  // codes are multiplied as signed bytes

// How many rows are multiplied at a time.
template <class Form>
int rows_of_tile(int64_t rows) {
    for (int count = Form::kMostSums / 2; count > 1; count /= 2) {
        if (rows >= count) return count;
    }
    return 1;
}

// M rows by N times four channels, beginning at channel `first`.
template <class Form, int group, int M, int N>
void multiply_tile(const Tile& t, int64_t first) {
    constexpr int kTogether = 16 / group;  // steps whose codes are loaded at a time
    typename Form::Sum sums[M][N] = {};
    const char* w = t.weights + 4 * first;
    const uint8x16_t flip = vdupq_n_u8(kCodesMinus);
    for (int64_t segment = 0; segment < t.segments; ++segment) {
        const char* x[M];
        for (int m = 0; m < M; ++m) x[m] = t.rows[m] + segment * t.segment;
        int8x16_t rows[M];
        const auto add = [&](auto at) __attribute__((always_inline)) {
            constexpr int kAt = decltype(at)::value;
            typename Form::Codes codes[M];
            unrolled<M>([&](auto m) { codes[m] = Form::template codes<kAt>(rows[m]); });
            unrolled<N>([&](auto n) {
                const auto* from = reinterpret_cast<const int8_t*>(w + 16 * n);
                const typename Form::Weights weights = Form::weights(vld1q_s8(from));
                unrolled<M>(
                    [&](auto m) { Form::template add<kAt>(sums[m][n], weights, codes[m]); });
            });
            w += 4 * t.width;
        };
        int64_t step = 0;
        for (; step + kTogether <= t.steps; step += kTogether) {
            unrolled<M>([&](auto m) {
                const auto* from = reinterpret_cast<const uint8_t*>(x[m] + step * group);
                rows[m] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(from), flip));
            });
            unrolled<kTogether>(add);
        }
        for (; step < t.steps; ++step) {
            unrolled<M>([&](auto m) {
                uint64_t some = 0;
                std::memcpy(&some, x[m] + step * group, group);
                const uint8x16_t codes = vreinterpretq_u8_u64(vdupq_n_u64(some));
                rows[m] = vreinterpretq_s8_u8(veorq_u8(codes, flip));
            });
            add(std::integral_constant<int, 0>());
        }
    }
    unrolled<M * N>([&](auto i) {
        vst1q_s32(t.sums + i / N * kPanel + first + i % N * 4, Form::total(sums[i / N][i % N]));
    });
}

template <class Form, int group, int M>
void multiply_rows(const Tile& t) {
    constexpr int N = Form::kMostSums / M;
    const bool fits = t.width % (4 * N) == 0;  // the width is a multiple of 16
    for (int64_t c = 0; fits && c < t.width; c += 4 * N) multiply_tile<Form, group, M, N>(t, c);
    for (int64_t c = 0; !fits && c < t.width; c += 16) multiply_tile<Form, group, M, 4>(t, c);
}

template <class Form, int group>
void multiply_tiles(const Tile& t, int rows) {
    constexpr int most = Form::kMostSums / 2;
    if (rows == most) return multiply_rows<Form, group, most>(t);
    if (most > 4 && rows == 4) return multiply_rows<Form, group, 4>(t);
    if (rows == 2) return multiply_rows<Form, group, 2>(t);
    multiply_rows<Form, group, 1>(t);
}

}  // namespace
}  // namespace qgraph::actor
