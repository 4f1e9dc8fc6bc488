#pragma once

#include <cstdint>

#include "core/quantize.h"

namespace qgraph {

// Some rows of some columns of a matrix whose rows are `stride` apart; one channel per column.
struct Tile {
    const float* x;
    const float* g;  // gradients only
    float* out;
    int64_t rows;
    int64_t columns;
    int64_t stride;
    const float* scales;  // 2^f, for each column
    const float* steps;   // 2^-f
    float low;
    float high;
    bool stream;   // write past the caches; out, columns and stride are then multiples of 64 bytes
    double* sums;  // gradients only: added to, for each column
};

// The same two kernels for each rounding mode.
struct TileKernels {
    void (*forward[kRoundings])(const Tile&);
    void (*backward[kRoundings])(const Tile&);
};

// Each is null where it isn't compiled in.
const TileKernels* plain_kernels();
const TileKernels* avx2_kernels();
const TileKernels* avx512_kernels();

}  // namespace qgraph
