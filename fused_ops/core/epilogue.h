#pragma once

#include <cstdint>

#include "core/norm.h"
#include "core/quantize.h"

namespace qgraph {

enum class Activation { none, relu, clip };
constexpr int kActivations = 3;

// A quantizer with one exponent f, |f| <= 126, for all elements. low <= 0 <= high are whole
// numbers.
struct Grid {
    int32_t f;
    float low;
    float high;
};

// The operations after a layer: quantizer, bias, activation, quantizer. Element i belongs to
// channel i % channels.
struct Epilogue {
    Grid inner;
    Grid outer;
    Rounding rounding;  // of both quantizers
    Activation activation;
    int64_t channels;
    const float* bias;  // of each channel
    const float* high;  // of each channel, for Activation::clip
    bool open;          // true: no gradient at exactly v = high; false: the gradient passes there
};

// y = outer(activation(inner(x) + bias)), where clip is min(max(v, 0), high). `count` is a multiple
// of the channels. NaN stays NaN. y may equal x but not overlap it otherwise.
void epilogue(const float* x, float* y, int64_t count, const Epilogue& epilogue);

// Gradients of an epilogue: `bias` and `high` (for Activation::clip) of each channel.
struct EpilogueSums {
    double inner;
    double outer;
    double* bias;
    double* high;
};

// The gradients, given g = d loss / d y: the same as from the four operations in sequence
// (quantize.h). The gradient of a clipped element goes to `high` of its channel.
// The sums of `inner` and `outer` have the order that quantize.h defines for one channel. The sums
// of channels have this order: a row of kLanes elements that begins at channel c is added to slots
// c, c + 1, ... of its block, row after row; then slots c + channels, c + 2 * channels, ... are
// added to slot c in turn; blocks are added up as in quantize.h. gx may equal g or x but not
// overlap them otherwise.
void epilogue_gradients(const float* x, const float* g, float* gx, EpilogueSums& sums,
                        int64_t count, const Epilogue& epilogue);

// The epilogue of the normalized x, which is not stored.
void normed_epilogue(const float* x, float* y, int64_t count, const Norm& norm,
                     const Epilogue& epilogue);

// Gradients of a norm, of each channel: g * (x - centre) and g, added up in the order of channels.
struct NormSums {
    double* scale;
    double* shift;
};

// The gradients of a normed epilogue: those of the epilogue of the normalized x, then those of the
// norm. gx is the gradient of x for constant centre, scale and shift. It may equal g but not
// overlap x.
void normed_epilogue_gradients(const float* x, const float* g, float* gx, EpilogueSums& sums,
                               NormSums& norm_sums, int64_t count, const Norm& norm,
                               const Epilogue& epilogue);

}  // namespace qgraph
