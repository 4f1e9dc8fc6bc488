// The work of one thread of the quantizer's CUDA kernels, as functions of its place in the grid.
// They also run on a CPU, where fused_ops/tests/grid_test.cpp calls them for each thread in turn.
//
// A thread block processes a tile: kTile columns of one block of the sum (quantize.h), which has
// kLeaves leaves of kLeafRows rows. A thread processes a leaf of Vec columns: neighbouring threads
// read neighbouring addresses, and the sums of a leaf need no other thread.
#pragma once

#include "cuda/reduce_grid.h"

namespace qgraph {
namespace {

// Arguments of a kernel; all pointers are to the device's memory. The forward pass has neither g
// nor partial.
struct QuantizeGrid {
    const void* x;
    const void* g;
    void* out;
    int64_t count;
    int64_t channels;
    Codes codes;
    double* partial;  // sums of each block: [blocks][columns]

    QGRAPH_INLINE int64_t columns() const { return channels == 1 ? kLanes : channels; }
    QGRAPH_INLINE int64_t rows() const { return (count + columns() - 1) / columns(); }
    QGRAPH_INLINE int64_t leaves() const { return (rows() + kLeafRows - 1) / kLeafRows; }
    QGRAPH_INLINE int64_t blocks() const { return (leaves() + kLeaves - 1) / kLeaves; }
    QGRAPH_INLINE int64_t tiles() const { return (columns() + kTile - 1) / kTile; }
};

// Processes the rows of one leaf in Vec columns; adds to sums[Vec] in the backward pass. All
// elements are read before any is written, since out may be x or g.
template <Rounding R, Type T, bool Backward, int Vec, int Rows>
QGRAPH_INLINE void batch(const QuantizeGrid& grid, int64_t first, const Params<Scalar>* params,
                         double* sums) {
    Pack<T, Vec> x[Rows];
    Pack<T, Vec> g[Rows];
    const auto stride = static_cast<uint32_t>(grid.columns());  // 64 bits would take registers
    const auto at = [&](uint32_t i) { return first + i * stride; };
    const auto size = [&](uint32_t i) { return Rows > 1 ? Vec : grid.count - at(i); };
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
        x[i] = load<T, Vec>(grid.x, at(i), size(i));
        if constexpr (Backward) g[i] = load<T, Vec>(grid.g, at(i), size(i));
    }
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
        Pack<T, Vec> out;
#pragma unroll
        for (int k = 0; k < Vec; ++k) {
            const float value = widened<T>(x[i].of[k]);
            if constexpr (Backward) {
                const float upstream = widened<T>(g[i].of[k]);
                const auto found = gradient<R, Scalar>(value, upstream, params[k]);
                out.of[k] = narrowed<T>(found.gx);
                // The product of 24-bit significands is exact in 53 bits, so fusing changes no
                // result.
                sums[k] =
                    fma(static_cast<double>(upstream), static_cast<double>(found.slope), sums[k]);
            } else {
                out.of[k] = narrowed<T>(quantized<R, Scalar>(value, params[k]));
            }
        }
        store<T, Vec>(grid.out, at(i), size(i), out);
    }
}

// One leaf in Vec columns.
template <Rounding R, Type T, bool Backward, int Vec>
QGRAPH_INLINE void leaf(const QuantizeGrid& grid, int64_t leaf, int64_t column, double* sums) {
    Params<Scalar> params[Vec];
#pragma unroll
    for (int k = 0; k < Vec; ++k)
        params[k] = params_of(grid.codes, grid.channels == 1 ? 0 : column + k);
    const int64_t begin = leaf * kLeafRows * grid.columns();
    int64_t at = begin + column;
    if (begin + kLeafRows * grid.columns() <= grid.count) {
#pragma unroll 1
        for (int row = 0; row < kLeafRows; row += kBatch, at += kBatch * grid.columns()) {
            batch<R, T, Backward, Vec, kBatch>(grid, at, params, sums);
        }
    } else {
#pragma unroll 1
        for (int row = 0; row < kLeafRows && at < grid.count; ++row, at += grid.columns()) {
            batch<R, T, Backward, Vec, 1>(grid, at, params, sums);
        }
    }
}

template <Rounding R, Type T, int Vec>
QGRAPH_INLINE void forward_thread(const QuantizeGrid& grid, const Place& place) {
    const int64_t column = place.block % grid.tiles() * kTile + place.x * Vec;
    const int64_t row_of_leaves = place.block / grid.tiles();
    const int64_t at = row_of_leaves * place.leaves + place.y;
    if (column >= grid.columns() || at >= grid.leaves()) return;
    leaf<R, T, false, Vec>(grid, at, column, nullptr);
}

typedef double LeafSums[kLeaves][kTile];

// The backward pass, first step: each thread processes its leaf.
template <Rounding R, Type T, int Vec>
QGRAPH_INLINE void backward_thread(const QuantizeGrid& grid, const Place& place, LeafSums& shared) {
    const int64_t column = place.block % grid.tiles() * kTile + place.x * Vec;
    const int64_t at = place.block / grid.tiles() * kLeaves + place.y;
    double sums[Vec] = {};
    if (column < grid.columns() && at < grid.leaves()) {
        leaf<R, T, true, Vec>(grid, at, column, sums);
    }
#pragma unroll
    for (int k = 0; k < Vec; ++k) shared[place.y][place.x * Vec + k] = sums[k];
}

// Second step, when all leaves are in `shared`: each of the first kTile threads adds up a column.
QGRAPH_INLINE void add_leaves(const QuantizeGrid& grid, const Place& place, int thread,
                              const LeafSums& shared) {
    const int64_t column = place.block % grid.tiles() * kTile + thread;
    if (thread >= kTile || column >= grid.columns()) return;
    double sum = shared[0][thread];
#pragma unroll
    for (int i = 1; i < kLeaves; ++i) sum += shared[i][thread];
    grid.partial[place.block / grid.tiles() * grid.columns() + column] = sum;
}

// The sums that the second kernel adds up.
QGRAPH_INLINE Reduction reduction_of(const QuantizeGrid& grid, Sums to) {
    return {grid.partial, grid.blocks(),     grid.columns(), grid.columns(), grid.codes,
            to,           grid.channels == 1};
}

}  // namespace
}  // namespace qgraph
