#pragma once

#include <cstdint>

#include "actor/kernels.h"

namespace qgraph::actor {
namespace {

constexpr int kMaxTileRows = 32;

// Some rows times one panel.
struct Tile {
    const char* rows[kMaxTileRows];  // where the first segment of each row begins
    int64_t segment;                 // bytes to the next segment
    int64_t segments;
    int64_t steps;        // groups of values in a segment
    const char* weights;  // of the panel
    int64_t width;        // its channels
    int32_t* sums;        // [rows, kPanel]
};

// Another form of a panel of integers. It is faster for many rows, although each call makes it
// again. A level that has one declares it:
//   pays(values, rows)            whether it is faster for these rows and values per channel
//   bytes(values)                 the memory that it needs
//   unpack(tile, scratch)            converts the weights of a tile
//   rows(rows, vectors)           how many of `rows` it takes at a time, with 16 * vectors channels
//   multiply(tile, rows, vectors, scratch)
template <Storage S>
struct Unpacked {
    static constexpr bool kPays = false;
};

}  // namespace
}  // namespace qgraph::actor
