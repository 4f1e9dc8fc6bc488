#pragma once

#include <cstdint>

namespace qgraph {

// From one row of patches to the next: more than a block of products, so that rows do not meet in
// one set of a cache.
constexpr int64_t kPatchStride = 256 + 16;

// Products of `depth` columns of patches with a panel of filters, added up for `rows` by `columns`
// outputs. Rows are computed in tiles.
struct ConvTile {
    const float* patches;  // rows of kPatchStride, as many as fill tiles
    const float* panel;    // [depth, columns of the panel]
    float* out;
    int64_t depth;
    int64_t stride;  // from one row of outputs to the next
    int64_t rows;
    int64_t columns;
    bool first;  // the sums are written; else they are added to what is there
};

constexpr int64_t kMostTileRows = 14;
constexpr int64_t kMostPanelColumns = 32;

struct ConvKernels {
    int64_t rows;     // of a tile
    int64_t columns;  // of a panel; panels of half as many take the second kernel
    void (*whole)(ConvTile);
    void (*half)(ConvTile);
};

}  // namespace qgraph
