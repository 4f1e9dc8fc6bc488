#pragma once

#include <cstdint>

#include "core/histogram.h"
#include "core/quantize.h"

namespace qgraph {

// Steps after a layer: a quantizer, a bias, a clip, a limit for each channel. Each is optional
// (null, or infinities).
struct Stage {
    const Quantizer* quantizer;  // of one channel
    const float* bias;           // of each channel
    int64_t channels;            // element i belongs to channel i % channels
    float low, high;
    const float* ceiling;  // of each channel
};

// y = min(clip(quantizer(x) + bias), ceiling), and its least and greatest value, in one pass over
// memory. `count`
// >= 1 is a multiple of the channels. NaN stays NaN. y may be x itself, but not overlap it
// otherwise.
Range stage(const float* x, float* y, int64_t count, const Stage& stage);

}  // namespace qgraph
