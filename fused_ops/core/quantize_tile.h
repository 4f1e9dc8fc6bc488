#pragma once

#include <cstdint>

#include "core/codes_span.h"
#include "core/conv_tile.h"
#include "core/epilogue_strip.h"
#include "core/norm_rows.h"
#include "core/quantize.h"
#include "core/rounding_tile.h"

namespace qgraph {

// A tile of a matrix whose rows are `stride` elements apart. Each column is a channel.
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
    double* sums;  // gradients only; added to, one for each column
};

using TileKernel = void (*)(const Tile&);

struct ByRounding {
    TileKernel of[kRoundings];
};

// The forward and backward kernel for each type and rounding mode, and the kernels of epilogues,
// convolutions, rounding, batch norms and codes in bytes.
struct TileKernels {
    ByRounding forward[kTypes];
    ByRounding backward[kTypes];
    ByActivation epilogue;
    ByActivation epilogue_gradients;
    ConvKernels conv;
    RoundingKernel rounding;
    NormKernels norm;
    CodeKernels codes;
};

// Each returns null if this build does not contain it.
const TileKernels* plain_kernels();
const TileKernels* avx2_kernels();
const TileKernels* avx512_kernels();

// The kernels of the instruction set in use.
const TileKernels& kernels();

}  // namespace qgraph
