#pragma once

#include <cstdint>

namespace qgraph {

// Rows of kLanes elements of a tensor whose channels are normalized. Vectors of channels have one
// value for each channel, then kLanes - 1 values from the first channel on again; so do sums, to
// which results are added.
struct NormRows {
    const float* x;
    const float* g;
    float* out;
    int64_t rows;
    int64_t channel;  // the channel of the first element
    int64_t channels;
    const float* centre;
    const float* scale;
    const float* shift;
    double* sums[2];
    const float* factor;  // of g, for add_scaled
};

using NormKernel = void (*)(const NormRows&);

struct NormKernels {
    NormKernel moments;     // sums of x - centre and of its square
    NormKernel normalize;   // out = (x - centre) * scale + shift
    NormKernel gradients;   // out = g * scale; sums of g * (x - centre) and of g
    NormKernel add;         // out = g + ((x - centre) * scale + shift)
    NormKernel add_scaled;  // out = g * factor + ((x - centre) * scale + shift)
};

}  // namespace qgraph
