// The quantizer's kernels, forward and backward, written with the vectors of one instruction set.
#pragma once

#include "core/quantize_tile.h"
#include "core/vectors.h"

namespace qgraph {
namespace {

template <int N>
inline Params<Lanes<N>> params_of(const Tile& tile, int64_t column) {
    return {load<Type::float32, N>(tile.scales, column), load<Type::float32, N>(tile.steps, column),
            Floats<N>{} + tile.low, Floats<N>{} + tile.high};
}

// Up to kLeafRows rows of Count vectors of N columns. The tile is passed by value: the compiler
// then knows that no store changes it.
template <Rounding R, Type T, bool Backward, int N, int Count, bool Stream>
inline void leaf(Tile tile, int64_t row, int64_t rows, int64_t column) {
    static_assert(Count <= 2);
    typedef Lanes<N> Ops;
    const Params<Ops> params[2] = {params_of<N>(tile, column),
                                   params_of<N>(tile, column + (Count - 1) * N)};
    Sums<N> sums[Count];
    for (int64_t end = row + rows; row < end; ++row) {
        for (int k = 0; k < Count; ++k) {
            const int64_t at = row * tile.stride + column + k * N;
            const Floats<N> x = load<T, N>(tile.x, at);
            if constexpr (Backward) {
                const Floats<N> g = load<T, N>(tile.g, at);
                const Gradient<Ops> found = gradient<R, Ops>(x, g, params[k]);
                store<T, N, Stream>(tile.out, at, found.gx);
                sums[k].add(g, found.slope);
            } else {
                store<T, N, Stream>(tile.out, at, quantized<R, Ops>(x, params[k]));
            }
        }
    }
    if constexpr (Backward) {
        for (int k = 0; k < Count; ++k) sums[k].add_to(tile.sums + column + k * N);
    }
}

template <Rounding R, Type T, bool Backward, bool Stream>
inline void leaves(const Tile& tile) {
    constexpr int kStep = kVectors * kWidth;
    for (int64_t row = 0; row < tile.rows; row += kLeafRows) {
        const int64_t rows = tile.rows - row < kLeafRows ? tile.rows - row : kLeafRows;
        int64_t column = 0;
        for (; column + kStep <= tile.columns; column += kStep) {
            leaf<R, T, Backward, kWidth, kVectors, Stream>(tile, row, rows, column);
        }
        for (; column + 4 <= tile.columns; column += 4) {
            leaf<R, T, Backward, 4, 1, false>(tile, row, rows, column);
        }
        for (; column < tile.columns; ++column) {
            leaf<R, T, Backward, 1, 1, false>(tile, row, rows, column);
        }
    }
}

template <Rounding R, Type T, bool Backward>
void run(const Tile& tile) {
    const IeeeArithmetic ieee;
    if (!tile.stream) return leaves<R, T, Backward, false>(tile);
    leaves<R, T, Backward, true>(tile);
    finish_streams();
}

template <Type T, bool Backward>
constexpr ByRounding kByRounding{
    {run<Rounding::half_even, T, Backward>, run<Rounding::half_up, T, Backward>,
     run<Rounding::half_away, T, Backward>, run<Rounding::floor, T, Backward>,
     run<Rounding::half_away, T, Backward>}};

}  // namespace
}  // namespace qgraph
