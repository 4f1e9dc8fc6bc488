#pragma once

#include <cstdint>

#include "core/conv_tile.h"
#include "core/epilogue_strip.h"
#include "core/quantize.h"
#include "core/rounding_tile.h"

namespace qgraph {

// Some rows of some columns of a matrix whose rows are `stride` elements apart; one channel per
// column.
struct Tile {
    const void* x;
    const void* g;  // gradients only
    void* out;
    int64_t rows;
    int64_t columns;
    int64_t stride;
    const float* scales;  // 2^f, for each column
    const float* steps;   // 2^-f
    float low;
    float high;
    bool stream;   // write past the caches; out is aligned to 64 bytes, columns and stride to 16
    double* sums;  // gradients only: added to, for each column
};

using TileKernel = void (*)(const Tile&);

struct ByRounding {
    TileKernel of[kRoundings];
};

// The same two kernels for each type of x, g and out, and each rounding mode; those of
// epilogues and convolutions, and that of rounding.
struct TileKernels {
    ByRounding forward[kTypes];
    ByRounding backward[kTypes];
    ByActivation epilogue;
    ByActivation epilogue_gradients;
    ConvKernels conv;
    RoundingKernel rounding;
};

// Each is null where it isn't compiled in.
const TileKernels* plain_kernels();
const TileKernels* avx2_kernels();
const TileKernels* avx512_kernels();

// Those of the instruction set that is chosen.
const TileKernels& kernels();

}  // namespace qgraph
