#pragma once

#include <cstdint>

namespace qgraph {

// A batch norm by one affine function for each channel: (x - centre) * scale + shift. Element i
// belongs to channel i % channels.
struct Norm {
    const float* centre;
    const float* scale;
    const float* shift;
};

// The mean and the biased variance of each channel, from sums of x - origin and of its square in
// float64, in the order that epilogue.h defines for sums of channels. origin: a number near the
// mean of each channel. `count` is a multiple of the channels.
void moments(const float* x, int64_t count, int64_t channels, const float* origin, double* mean,
             double* variance);

// out = g + ((x - centre) * scale + shift), in float32. out may equal g or x but not overlap them
// otherwise.
void add_normalized(const float* g, const float* x, float* out, int64_t count, int64_t channels,
                    const Norm& norm);

}  // namespace qgraph
