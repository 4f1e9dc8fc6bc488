// Sums of products of some rows of codes and some registers of channels, for each multiplication
// instruction. Each level includes this once, after it has defined dot_bytes and dot_words.

#pragma once

#include "engine/kernels/operands.h"

namespace qgraph::engine::kernels {
namespace {

// Sums of M rows and N registers of channels, which stay in registers throughout.
template <int M, int N, Dot dot>
inline void multiply(const Operands& o) {
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
            for (int n = 0; n < N; ++n) sums[m][n] = dot(sums[m][n], four, weights[n]);
        }
        a += 4;
        w += N * kRegister;
    }
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) store(o.sums + m * o.sums_row + n * kWide, sums[m][n]);
    }
}

template <int M, int N>
void multiply_words(const Operands& o) {
    multiply<M, N, dot_words>(o);
}

}  // namespace
}  // namespace qgraph::engine::kernels
