// Runs the quantizer's CUDA kernels on the CPU.
#pragma once

#include "cuda/quantize_grid.h"
#include "tests/emulated/cuda.h"

namespace qgraph {
namespace {

template <Rounding R, Type T, int Vec>
void run_forward(const QuantizeGrid& grid) {
    constexpr int kRows = 8;
    const int64_t blocks = (grid.leaves() + kRows - 1) / kRows * grid.tiles();
    for (int64_t block = 0; block < blocks; ++block) {
        each_thread(block, kTile / Vec, kRows,
                    [&](const Place& place) { forward_thread<R, T, Vec>(grid, place); });
    }
}

template <Rounding R, Type T, int Vec>
void run_backward(const QuantizeGrid& grid) {
    constexpr int kWidth = kTile / Vec;
    for (int64_t block = 0; block < grid.blocks() * grid.tiles(); ++block) {
        LeafSums shared;
        each_thread(block, kWidth, kLeaves,
                    [&](const Place& place) { backward_thread<R, T, Vec>(grid, place, shared); });
        each_thread(block, kWidth, kLeaves, [&](const Place& place) {
            add_leaves(grid, place, place.y * kWidth + place.x, shared);
        });
    }
}

}  // namespace
}  // namespace qgraph
