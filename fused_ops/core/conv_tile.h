#pragma once

#include <cstdint>

namespace qgraph {

// Distance between rows of patches. It is larger than a block of products, so that rows do not map
// to the same set of a cache.
constexpr int64_t kPatchStride = 256 + 16;

// Sums of products of patches with a panel of filters over `depth` columns, for `rows` by `columns`
// outputs. Rows are computed in tiles.
struct ConvTile {
    const float* patches;  // rows of kPatchStride numbers, padded to whole tiles
    const float* panel;    // [depth, columns of the panel]
    float* out;
    int64_t depth;
    int64_t stride;  // from one row of outputs to the next
    int64_t rows;
    int64_t columns;
    bool first;  // true: write the sums; false: add them to y
};

constexpr int64_t kMostTileRows = 14;
constexpr int64_t kMostPanelColumns = 32;

struct ConvKernels {
    int64_t rows;     // of a tile
    int64_t columns;  // of a panel; the second kernel is for panels of half the width
    void (*whole)(ConvTile);
    void (*half)(ConvTile);
};

}  // namespace qgraph
