#pragma once

#include <cstdint>

#include "core/epilogue.h"

namespace qgraph {

// Consecutive rows of kLanes elements of a tensor: a block, or part of one.
struct Strip {
    const float* x;
    const float* g;  // gradients only
    float* out;
    int64_t rows;
    int64_t channel;  // the channel of the first element
    int64_t channels;
    // One value for each channel, then kLanes - 1 values from the first channel on again.
    const float* bias;
    const float* high;  // for Activation::clip
    const float* last;  // for Activation::clip: gradients pass up to this value
    float inner_scale, inner_step, inner_low, inner_high;
    float outer_scale, outer_step, outer_low, outer_high;
    bool stream;  // write past the caches; out is aligned to 64 bytes
    // Gradients only; results are added. The first two have kLanes sums, the others channels +
    // kLanes - 1.
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
