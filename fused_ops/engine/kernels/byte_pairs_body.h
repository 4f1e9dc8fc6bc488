// Products of bytes in pairs (extra_steps.h). Each level that multiplies in pairs includes this
// once, after it has defined multiply_pairs and add_pairs.

#pragma once

#include "engine/kernels/products_body.h"

namespace qgraph::engine::kernels {
namespace {

// For layers where words hold the sums of pairs.
inline Ints dot_pairs(Ints sums, Ints codes, Ints weights) {
    return plus(sums, add_pairs(multiply_pairs(codes, weights)));
}
constexpr Dot dot_small = dot_pairs;

// Sums of M rows and N registers of channels, with extra steps.
template <int M, int N>
struct Tile {
    Ints sums[M][N];

    void load_start(const Operands& o) {
        for (int n = 0; n < N; ++n) {
            const Ints start = load<Ints>(o.start + n * kWide);
            for (int m = 0; m < M; ++m) sums[m][n] = start;
        }
    }
    void store_sums(const Operands& o) const {
        for (int m = 0; m < M; ++m) {
            for (int n = 0; n < N; ++n) store(o.sums + m * o.sums_row + n * kWide, sums[m][n]);
        }
    }

    // A chunk of steps: words hold the sum of their products.
    template <int steps>
    void add(const uint8_t* a, int64_t row, const int8_t* w) {
        Ints weights[steps][N];
        for (int i = 0; i < steps; ++i) {
            for (int n = 0; n < N; ++n) weights[i][n] = load<Ints>(w + (i * N + n) * kRegister);
        }
        for (int m = 0; m < M; ++m) {
            Shorts words[N];
            for (int i = 0; i < steps; ++i) {
                const Ints four = load_four(a + m * row + i * 4);
                for (int n = 0; n < N; ++n) {
                    const Shorts products = multiply_pairs(four, weights[i][n]);
                    words[n] = i == 0 ? products : words[n] + products;
                }
            }
            for (int n = 0; n < N; ++n) sums[m][n] = plus(sums[m][n], add_pairs(words[n]));
        }
    }

    void add_extra_steps(const Operands& o) {
        const int8_t* rest = o.extra.rest;
        for (const int32_t* step = o.extra.begin; step != o.extra.end; ++step) {
            add<1>(o.a + *step * int64_t{4}, o.row, rest);
            rest += 2 * kRegister;
        }
    }
};

template <int M, int N, int chunk>
void multiply_chunks(const Operands& o) {
    Tile<M, N> tile;
    tile.load_start(o);
    const uint8_t* a = o.a;
    const int8_t* w = o.w;
    const int64_t row = o.row;
    int64_t step = 0;
    for (; step + chunk <= o.steps; step += chunk) {
        for (int i = 0; i < chunk; ++i) __builtin_prefetch(o.ahead + (step + i) * 64, 0, 2);
        tile.template add<chunk>(a, row, w);
        a += 4 * chunk;
        w += N * kRegister * chunk;
    }
    if (step < o.steps) tile.template add<1>(a, row, w);
    tile.add_extra_steps(o);
    tile.store_sums(o);
}

template <int M, int N>
void multiply_bytes(const Operands& o) {
    if (o.extra.chunk == 2) return multiply_chunks<M, N, 2>(o);
    multiply_chunks<M, N, 1>(o);
}

}  // namespace
}  // namespace qgraph::engine::kernels
