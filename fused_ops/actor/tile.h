#pragma once

#include <cstdint>

namespace qgraph::actor {
namespace {

constexpr int kMaxTileRows = 24;

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

}  // namespace
}  // namespace qgraph::actor
