// How a tensor is divided into blocks. Threads claim blocks, and sums are computed per block, in an
// order that depends on shapes only (quantize.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/quantize.h"

namespace qgraph {

constexpr double kLn2 = 0.693147180559945309417232121458;
constexpr int64_t kBlockRows = kLeafRows * kLeaves;
constexpr int64_t kLeaf = kLanes * kLeafRows;
constexpr int64_t kBlock = kLeaf * kLeaves;

// One more thread is worth waking for this many elements.
constexpr int64_t kGrain = 1 << 17;

// An output of at least this size does not stay in the caches until it is read, so streaming stores
// save loading its cache lines first. For smaller outputs they would evict data that is read next.
constexpr int64_t kStream = 1 << 24;  // bytes

inline bool streams(const void* out, int64_t bytes) {
    return bytes >= kStream && reinterpret_cast<uintptr_t>(out) % 64 == 0;
}

// Adds up the rows of a matrix [blocks, columns], in spans of kBlocks, into its first row.
inline void add_up_blocks(std::vector<double>& partial, int64_t blocks, int64_t columns) {
    const auto add = [&](int64_t to, int64_t from) {
        double* sums = partial.data() + to * columns;
        for (int64_t i = 0; i < columns; ++i) sums[i] += partial[from * columns + i];
    };
    for (int64_t span = 0; span < blocks; span += kBlocks) {
        const int64_t end = std::min(span + kBlocks, blocks);
        for (int64_t block = span + 1; block < end; ++block) add(span, block);
        if (span > 0) add(0, span);
    }
}

// One value for each channel, then the values from the first on again: kLanes consecutive values
// can be read from any channel on.
inline std::vector<float> repeated(const float* values, int64_t channels) {
    std::vector<float> made(static_cast<size_t>(channels + kLanes - 1));
    for (size_t i = 0; i < made.size(); ++i) made[i] = values[i % static_cast<size_t>(channels)];
    return made;
}

// Adds sums in such slots to those of their channels.
inline void fold_slots(const std::vector<double>& slots, double* sums, int64_t channels) {
    for (size_t i = 0; i < slots.size(); ++i) sums[i % static_cast<size_t>(channels)] += slots[i];
}

// Adds up kLanes sums into the first: the upper half is added to the lower until one is left.
inline void add_up_lanes(double* sums) {
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
        for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
}

}  // namespace qgraph
