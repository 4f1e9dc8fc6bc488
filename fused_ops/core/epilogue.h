#pragma once

#include <cstdint>

#include "core/quantize.h"

namespace qgraph {

enum class Activation { none, relu, clip };
constexpr int kActivations = 3;

// A quantizer with one exponent f, |f| <= 126, for all elements; low <= 0 <= high are whole.
struct Grid {
    int32_t f;
    float low;
    float high;
};

// What stands behind a layer: a quantizer, a bias, an activation, a quantizer. Element i belongs to
// channel i % channels.
struct Epilogue {
    Grid inner;
    Grid outer;
    Rounding rounding;  // of both
    Activation activation;
    int64_t channels;
    const float* bias;  // of each channel
    const float* high;  // of each channel, for Activation::clip
    bool open;          // no gradient where the clip is just reached; else it passes there
};

// y = outer(activation(inner(x) + bias)), where clip is min(max(v, 0), high). `count` is a multiple
// of the channels. NaN stays NaN. y may be x itself, but not overlap it otherwise.
void epilogue(const float* x, float* y, int64_t count, const Epilogue& epilogue);

// Gradients of an epilogue: `bias` and `high` (for Activation::clip) of each channel.
struct EpilogueSums {
    double inner;
    double outer;
    double* bias;
    double* high;
};

// The gradients, given g = d loss / d y, as the four one after the other have them (quantize.h).
// What is clipped is d loss / d high of its channel.
// The sums of `inner` and `outer` have the order that is in quantize.h for one channel. In those of
// channels, a row of kLanes elements that begins at channel c is added to slots c, c + 1 ... of its
// block, row after row; then slot c takes c + channels, c + 2 * channels ... in turn, and blocks
// are added up as there. gx may be g or x itself, but not overlap them otherwise.
void epilogue_gradients(const float* x, const float* g, float* gx, EpilogueSums& sums,
                        int64_t count, const Epilogue& epilogue);

}  // namespace qgraph
