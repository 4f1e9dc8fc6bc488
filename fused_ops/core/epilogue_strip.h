#pragma once

#include <cstdint>

#include "core/epilogue.h"

namespace qgraph {

// Rows of kLanes elements of a tensor, one after the other: a block of it, or less.
struct Strip {
    const float* x;
    const float* g;  // gradients only
    float* out;
    int64_t rows;
    int64_t channel;  // of the first element
    int64_t channels;
    // For each channel, and then from the first on again: kLanes - 1 more.
    const float* bias;
    const float* high;  // for Activation::clip
    const float* last;  // likewise: up to here gradients pass
    float inner_scale, inner_step, inner_low, inner_high;
    float outer_scale, outer_step, outer_low, outer_high;
    bool stream;  // write past the caches; out is aligned to 64 bytes
    // Gradients only, added to: kLanes each, and channels + kLanes - 1 each.
    double* inner_sums;
    double* outer_sums;
    double* bias_sums;
    double* high_sums;
};

using StripKernel = void (*)(const Strip&);

struct ByActivation {
    StripKernel of[kActivations][kRoundings];
};

}  // namespace qgraph
