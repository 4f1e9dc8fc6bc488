// Runs the threads of a CUDA kernel on the CPU, one after the other.
#pragma once

#include "cuda/reduce_grid.h"

namespace qgraph {
namespace {

// Calls f for each thread of a block.
template <typename F>
void each_thread(int64_t block, int width, int height, F f) {
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) f(Place{block, x, y, height});
    }
}

inline void run_reduce(const Reductions& reductions) {
    for (int64_t number = 0; number < reductions.tiles(); ++number) {
        int64_t block = number;
        const Reduction& reduction = reductions.at(block);
        double lanes[kTile] = {};
        for (int64_t round = 0; round < reduction.rounds(); ++round) {
            SpanSums shared;
            each_thread(block, kTile, kSpans,
                        [&](const Place& place) { add_blocks(reduction, place, round, shared); });
            each_thread(block, kTile, 1, [&](const Place& place) {
                lanes[place.x] = add_spans(lanes[place.x], place, shared);
            });
        }
        for (int half = reduction.lanes ? kTile / 2 : 0; half > 0; half /= 2) {
            each_thread(block, kTile, 1,
                        [&](const Place& place) { fold_lanes(place, half, lanes); });
        }
        each_thread(block, kTile, 1, [&](const Place& place) { finish(reduction, place, lanes); });
    }
}

}  // namespace
}  // namespace qgraph
