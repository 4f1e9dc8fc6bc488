#pragma once

#include <cstdint>

#include "core/codes.h"
#include "core/norm.h"

namespace qgraph {

// Batch norms of values that are stored as codes in bytes. The results have the bits of the same
// operations on the unpacked values.

// out = (x - centre) * scale + shift, where x are the values of the codes.
void normalize_codes(const uint8_t* codes, const ByteCodes& form, float* out, int64_t count,
                     int64_t channels, const Norm& norm);

// Statistics of a batch, of each channel: the mean of x, the scale of x - mean, and the derivative
// of this scale by the variance of x.
struct BatchStatistics {
    const float* mean;
    const float* scale;
    const float* slope;
};

// The gradient of x, given g = d loss / d y, for y = (x - mean) * scale + shift with the mean and
// the variance of x:
//     g * scale + ((x - mean) * a + b)   a = 2 * slope * sum(g * (x - mean)) / n
//                                        b = -scale * sum(g) / n
// n is the number of elements of a channel. Sums are in float64, in the order that epilogue.h
// defines for channels; a and b are rounded to float32. out may equal g.
void normalized_codes_gradient(const float* g, const uint8_t* codes, const ByteCodes& form,
                               float* out, int64_t count, int64_t channels,
                               const BatchStatistics& batch);

}  // namespace qgraph
