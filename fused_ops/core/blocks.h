// How a tensor is divided into blocks. Threads claim blocks, and sums are computed per block, in an
// order that depends on shapes only (quantize.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/aligned.h"
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
inline AlignedVector<float> repeated(const float* values, int64_t channels) {
    AlignedVector<float> made(values, values + channels);
    made.resize(static_cast<size_t>(channels + kLanes - 1));
    for (size_t i = channels; i < made.size(); ++i) made[i] = made[i - channels];
    return made;
}

// A sum for each slot: channels, and kLanes - 1 slots of the first channels again. If channels are
// a multiple of 8, no vector of sums spans two cache lines.
using Slots = AlignedVector<double>;

// Adds sums in such slots to those of their channels.
inline void fold_slots(const Slots& slots, double* sums, int64_t channels) {
    const auto count = static_cast<int64_t>(slots.size());
    for (int64_t first = 0; first < count; first += channels) {
        const int64_t end = std::min(channels, count - first);
        for (int64_t i = 0; i < end; ++i) sums[i] += slots[first + i];
    }
}

// Adds up kLanes sums into the first: the upper half is added to the lower until one is left.
inline void add_up_lanes(double* sums) {
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
        for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
}

}  // namespace qgraph
