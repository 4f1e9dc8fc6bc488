// Runs the epilogue's CUDA kernels on the CPU.
#pragma once

#include <vector>

#include "cuda/epilogue_grid.h"
#include "tests/emulated/cuda.h"

namespace qgraph {
namespace {

template <Rounding R, Activation A, int Vec>
void run_epilogue(const EpilogueGrid& grid) {
    for (int64_t block = 0; block * kForwardElements<Vec> < grid.count; ++block) {
        each_thread(block, kThreads, 1,
                    [&](const Place& place) { epilogue_thread<R, A, Vec>(grid, place); });
    }
}

template <Rounding R, Activation A>
void run_epilogue_gradients(const EpilogueGrid& grid) {
    constexpr int kWidth = static_cast<int>(kLanes);
    for (int64_t block = 0; block < grid.blocks(); ++block) {
        std::vector<double> totals(kThreads);
        const auto run = [&](auto step) {
            each_thread(block, kWidth, kPartLeaves,
                        [&](const Place& place) { step(place, place.y * kWidth + place.x); });
        };
        for (int part = 0; part < kParts; ++part) {
            PartSums<A> shared;
            run([&](const Place& place, int) { epilogue_leaf<R, A>(grid, place, part, shared); });
            run([&](const Place&, int thread) {
                add_part(thread, shared, totals[static_cast<size_t>(thread)]);
                add_slots(grid, block, part, thread, shared);
            });
        }
        run([&](const Place&, int thread) {
            finish_block<A>(grid, block, thread, totals[static_cast<size_t>(thread)]);
        });
    }
}

}  // namespace
}  // namespace qgraph
