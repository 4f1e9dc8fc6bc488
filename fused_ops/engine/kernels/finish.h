#pragma once

#include <cstdint>
#include <vector>

#include "engine/kernels/kernels.h"

namespace qgraph::engine::kernels {

// Channels of a result that are computed together: `vectors` registers of 4 * lanes sums. A lane
// has 128 bits, and a register has `lanes` lanes. The order of sums is such that packing registers
// to bytes within their lanes gives the channels in order: sum i of lane l of vector j belongs to
// channel 4 * vectors * l + 4 * j + i.
struct Block {
    int64_t channel;   // the first
    int64_t channels;  // in the last block, fewer than sums
    int64_t position;  // of the first sum among the sums of all blocks
    int vectors;       // 1, 2 or 4
    bool small;        // depthwise: words hold pairs of products (extra_steps.h)
};

int64_t channel_in_block(const Block& block, int lanes, int64_t position);

// The blocks of `groups` groups of channels. With `whole`, all have 4 vectors.
std::vector<Block> blocks_of(int64_t channels, int64_t groups, int lanes, bool whole);

// One step from sums to results. Arrays have a number for each position; they are given by their
// offset in the packed memory.
//   round   v >> a, corrected by b and c for the rounding mode (`rounded` in finish_body.h); half
//   of
//           2^a has been added before
//   add     v + a
//   clip    clip(v, a, b)
//   left    v << a, saturated; b and c are the smallest and largest v that do not overflow
//   exact   round_shift(v, a) for any v and a, saturated; slow
struct Step {
    enum class Kind { round, add, clip, left, exact };
    Kind kind = Kind::add;
    Rounding rounding = Rounding::floor;
    bool uniform = false;  // all channels have the same numbers
    int64_t a = 0, b = 0, c = 0;
};

constexpr int kMaxSteps = 6 * kMaxStages;

// Stages ready to run: sums begin at `start`, go through the steps, and are clipped at the end.
struct Finish {
    // Chains with a special loop: one rounding; the same after a left shift that never overflows
    // and an addition; two roundings with an addition between them; the same with saturated 16-bit
    // arithmetic for the addition and the second rounding.
    enum class Chain { any, round, left_round, twice, twice_short };
    Code y;
    Chain chain;
    int count;
    Step steps[kMaxSteps];
    int64_t start;      // for each position, in s32
    int64_t low, high;  // the same
    int64_t byte_low;   // for each channel, if y has bytes; 64 bytes more than channels
    int64_t byte_high;
};

constexpr int64_t kAlign = 64;
constexpr int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

using Values = std::vector<int64_t>;  // for each channel

// The range of sums before the stages, and a constant to add, for each channel.
struct Sums {
    Values low, high;
    std::vector<uint32_t> start;
};

int64_t finish_size(int64_t positions, int64_t channels, int stages);

// Writes arrays to memory from `at` on.
Finish make_finish(Stages stages, Code y, const std::vector<Block>& blocks, int lanes,
                   const Sums& sums, char* memory, int64_t at);

}  // namespace qgraph::engine::kernels
