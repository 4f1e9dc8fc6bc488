// Convolutions as matrix products: rows of input codes times packed weights. Included once by each
// level, which has defined kRows, dot_bytes and dot_words.

#pragma once

#include "engine/kernels/finish_body.h"
#include "engine/kernels/gather.h"

namespace qgraph::engine::kernels {
namespace {

struct Operands {
    const uint8_t* a;     // rows of input codes
    int64_t row;          // bytes from one to the next
    int64_t steps;        // of 4 bytes
    const int8_t* w;      // for each step N registers: of each sum 4 bytes
    const int8_t* ahead;  // 64 bytes for each step, which are going to be needed
    const int32_t* start;
    int32_t* sums;  // M rows of N registers
    int64_t sums_row;
};

// Sums of M rows and N registers of channels, which stay in registers throughout.
template <int M, int N, bool words>
void multiply(const Operands& o) {
    Ints sums[M][N];
    for (int n = 0; n < N; ++n) {
        const Ints start = load<Ints>(o.start + n * kWide);
        for (int m = 0; m < M; ++m) sums[m][n] = start;
    }
    const uint8_t* a = o.a;
    const int8_t* w = o.w;
    const int64_t row = o.row;
    for (int64_t step = 0; step < o.steps; ++step) {
        __builtin_prefetch(o.ahead + step * 64, 0, 2);
        Ints weights[N];
        for (int n = 0; n < N; ++n) weights[n] = load<Ints>(w + n * kRegister);
        for (int m = 0; m < M; ++m) {
            const Ints four = load_four(a + m * row);
            for (int n = 0; n < N; ++n) {
                sums[m][n] = words ? dot_words(sums[m][n], four, weights[n])
                                   : dot_bytes(sums[m][n], four, weights[n]);
            }
        }
        a += 4;
        w += N * kRegister;
    }
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) store(o.sums + m * o.sums_row + n * kWide, sums[m][n]);
    }
}

using Multiply = void (*)(const Operands&);

template <int M, bool words>
Multiply multiply_of(int vectors) {
    return vectors == 1 ? &multiply<M, 1, words> : &multiply<M, 2, words>;
}

// The kernel for the most rows that there are, and how many it takes.
struct Choice {
    int rows;
    Multiply kernel;
};

template <bool words>
Choice choose(int64_t rows, int vectors) {
    static_assert(kRows <= kTileRows, "sums of a tile must have room");
    if (rows >= kRows) return {kRows, multiply_of<kRows, words>(vectors)};
    if (kRows > 7 && rows >= 7) return {7, multiply_of<7, words>(vectors)};
    if (kRows > 4 && rows >= 4) return {4, multiply_of<4, words>(vectors)};
    if (rows >= 2) return {2, multiply_of<2, words>(vectors)};
    return {1, multiply_of<1, words>(vectors)};
}

// Of some pixels, whose rows begin at `a`, all channels of one block.
void run_block(const Layer& layer, const Block& block, const char* a, int64_t pixels, int32_t* sums,
               char* y) {
    const int64_t y_row = layer.conv.out_channels * size_of(layer.conv.y);
    const int step = std::min(block.vectors, 2);  // registers of channels at a time
    const auto* start = reinterpret_cast<const int32_t*>(layer.at(layer.finish.start));
    const FinishRows finish = finish_of(layer.finish, block);
    const auto* weights = reinterpret_cast<const int8_t*>(layer.at(layer.weights));
    const int64_t of_one = layer.steps * 4;  // bytes of weights of one sum
    // From the second tile on weights are near, and those of the next block can be fetched.
    int64_t ahead = block.position + block.vectors * kWide;
    const int64_t last = std::min(block.position + 2 * block.vectors * kWide,
                                  (layer.tap_table - layer.weights) / of_one);
    Choice choice{};
    for (int64_t pixel = 0; pixel < pixels; pixel += choice.rows) {
        choice =
            layer.words ? choose<true>(pixels - pixel, step) : choose<false>(pixels - pixel, step);
        for (int vector = 0; vector < block.vectors; vector += step) {
            const int64_t position = block.position + vector * kWide;
            const auto* a_row = reinterpret_cast<const uint8_t*>(a) + pixel * layer.row;
            const bool fetch = pixel > 0 && ahead < last;
            choice.kernel({a_row, layer.row, layer.steps, weights + position * of_one,
                           weights + (fetch ? ahead : position) * of_one, start + position,
                           sums + vector * kWide, block.vectors * kWide});
            if (fetch) ahead += 16;
        }
        finish({layer, block, sums, choice.rows, y + pixel * y_row, y_row});
    }
}

void run_matrix(const Layer& layer, const char* x, char* y, const Part& part, char* scratch) {
    const Conv& s = layer.conv;
    const int64_t size = size_of(s.x);
    auto* sums = reinterpret_cast<int32_t*>(scratch);
    char* gathered = scratch + kTileRows * 4 * kWide * 4;
    for (int64_t begin = part.begin; begin < part.end; begin += layer.rows) {
        const int64_t pixels = std::min(part.end - begin, layer.rows);
        int64_t group = -1;
        const char* a = nullptr;
        for (int64_t i = part.first_block; i < part.last_block; ++i) {
            const Block& block = *layer.block(i);
            if (i / layer.blocks_in_group != group) {
                group = i / layer.blocks_in_group;
                if (layer.direct) {
                    a = x + (begin * s.channels + group * (s.channels / s.groups)) * size;
                } else {
                    Gather(layer, x, group, begin + pixels - 1)
                        .run(begin, begin + pixels, gathered);
                    a = gathered;
                }
            }
            run_block(layer, block, a, pixels, sums,
                      y + (begin * s.out_channels + block.channel) * size_of(s.y));
        }
    }
}

}  // namespace
}  // namespace qgraph::engine::kernels
