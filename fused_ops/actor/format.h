#pragma once

// A block: the bytes that are broadcast to actors. qgraph/rl/actor/layout.py declares the same
// records, writes them, and describes how kernels are stored in panels.

#include <cstdint>

namespace qgraph::actor {

constexpr char kMagic[8] = {'\x89', 'Q', 'G', 'A', '\r', '\n', '\x1a', '\n'};
constexpr uint32_t kFormat = 1;
constexpr int64_t kAlignment = 64;
constexpr int kPanel = 64;  // output channels of a panel
constexpr int kLanes = 16;  // the number of output channels is rounded up to a multiple of this
constexpr int kMaxRank = 4;
constexpr int64_t kMaxSum = 1 << 16;     // products in one sum
constexpr uint32_t kMaxCount = 1 << 12;  // of steps, weights and outputs
constexpr uint32_t kNoWeight = 0xffffffff;

struct Header {
    char magic[8];
    uint32_t format;
    uint32_t bits;
    uint64_t checksum;  // of all 32-bit words, with 0 in place of the checksum
    uint64_t size;
    uint64_t version;
    uint32_t values;
    uint32_t weights;
    uint32_t steps;
    uint32_t indices;
    uint32_t outputs;
    uint32_t names;  // bytes
};
static_assert(sizeof(Header) == 64);

struct ValueRecord {
    uint32_t name;
    uint32_t name_size;
    uint32_t rank;
    uint32_t shape[kMaxRank];
    uint32_t reserved;
};
static_assert(sizeof(ValueRecord) == 32);

struct WeightRecord {
    uint32_t name;
    uint32_t name_size;
    uint32_t rank;
    uint32_t shape[kMaxRank];
    uint32_t storage;
    uint32_t bits;
    uint32_t reserved;
    uint64_t data;  // from the beginning of the block
    uint64_t scale;
    uint64_t sums;
};
static_assert(sizeof(WeightRecord) == 64);

struct StepRecord {
    uint32_t op;
    uint32_t activation;
    float alpha;
    float epsilon;
    uint32_t output;
    uint32_t inputs;  // number of indices that are inputs
    uint32_t weights[2];
    uint32_t strides[2];
    uint32_t pads[4];   // top, bottom, left, right; reshape: sizes; transpose: axes, from 1
    uint32_t ksize[2];  // slice: the first column, and how many
};
static_assert(sizeof(StepRecord) == 64);

}  // namespace qgraph::actor
