#pragma once

#include <cstdint>

#include "actor/kernels.h"

namespace qgraph::actor {
namespace {

constexpr int kMaxTileRows = 32;

// Some rows times one panel.
struct Tile {
    const char* rows[kMaxTileRows];  // where the first segment of each begins
    int64_t segment;                 // bytes to the next
    int64_t segments;
    int64_t steps;        // groups of values in a segment
    const char* weights;  // of the panel
    int64_t width;        // its channels
    int32_t* sums;        // [rows, kPanel]
};

// Another form of a panel of integers, which many rows are quicker with although it is made again
// in each call. A level that has one declares it:
//   pays(values, rows)            whether it is worth it for so many rows, and values of a channel
//   bytes(values)                 of room for it
//   unpack(tile, room)            brings the weights of a tile into it
//   rows(rows, vectors)           how many of so many rows, and 16 channels, it takes at a time
//   multiply(tile, rows, vectors, room)
template <Storage S>
struct Unpacked {
    static constexpr bool kPays = false;
};

}  // namespace
}  // namespace qgraph::actor
