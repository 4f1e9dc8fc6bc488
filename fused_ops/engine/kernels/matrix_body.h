// Convolutions as matrix products: rows of input codes times packed weights. Each level includes
// this once, after it has defined kRows, multiply_bytes and multiply_words.

#pragma once

#include "engine/kernels/finish_body.h"
#include "engine/kernels/gather.h"
#include "engine/kernels/operands.h"

namespace qgraph::engine::kernels {
namespace {

using Multiply = void (*)(const Operands&);

// The kernel for as many of the given rows as possible, and the number of rows that it takes.
struct Choice {
    int rows;
    Multiply kernel;
};

template <int M>
Choice choose(bool words, int vectors) {
    static_assert(M <= kTileRows, "a tile has memory for kTileRows rows");
    if (words) return {M, vectors == 1 ? &multiply_words<M, 1> : &multiply_words<M, 2>};
    return {M, vectors == 1 ? &multiply_bytes<M, 1> : &multiply_bytes<M, 2>};
}

Choice choose(bool words, int64_t rows, int vectors) {
    if (rows >= kRows) return choose<kRows>(words, vectors);
    if (kRows > 7 && rows >= 7) return choose<7>(words, vectors);
    if (kRows > 4 && rows >= 4) return choose<4>(words, vectors);
    if (rows >= 2) return choose<2>(words, vectors);
    return choose<1>(words, vectors);
}

ExtraRange extra_steps_of(const Layer& layer, int64_t register_of_sums) {
    const auto* first =
        reinterpret_cast<const int64_t*>(layer.at(layer.extra_first)) + register_of_sums;
    const auto* steps = reinterpret_cast<const int32_t*>(layer.at(layer.extra_steps));
    const auto* rest = reinterpret_cast<const int8_t*>(layer.at(layer.extra_weights));
    return {layer.chunk, steps + first[0], steps + first[1], rest + first[0] * 2 * kRegister};
}

// Computes all channels of one block for some pixels, whose rows begin at `a`.
void run_block(const Layer& layer, const Block& block, const char* a, int64_t pixels, int32_t* sums,
               char* y) {
    const int64_t y_row = layer.conv.out_channels * size_of(layer.conv.y);
    const int step = std::min(block.vectors, 2);  // registers of channels computed at a time
    const auto* start = reinterpret_cast<const int32_t*>(layer.at(layer.finish.start));
    const FinishRows finish = finish_of(layer.finish, block);
    const auto* weights = reinterpret_cast<const int8_t*>(layer.at(layer.weights));
    const int64_t of_one = layer.steps * 4;  // bytes of weights per sum
    // From the second tile on, weights are in the cache, and those of the next block are
    // prefetched.
    int64_t ahead = block.position + block.vectors * kWide;
    const int64_t last = std::min(block.position + 2 * block.vectors * kWide,
                                  (layer.tap_table - layer.weights) / of_one);
    Choice choice{};
    for (int64_t pixel = 0; pixel < pixels; pixel += choice.rows) {
        choice = choose(layer.words, pixels - pixel, step);
        for (int vector = 0; vector < block.vectors; vector += step) {
            const int64_t position = block.position + vector * kWide;
            const auto* a_row = reinterpret_cast<const uint8_t*>(a) + pixel * layer.row;
            const bool fetch = pixel > 0 && ahead < last;
            Operands o{a_row,
                       layer.row,
                       layer.steps,
                       weights + position * of_one,
                       weights + (fetch ? ahead : position) * of_one,
                       start + position,
                       sums + vector * kWide,
                       block.vectors * kWide,
                       {}};
            if (layer.chunk > 0) o.extra = extra_steps_of(layer, position / kWide);
            choice.kernel(o);
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
