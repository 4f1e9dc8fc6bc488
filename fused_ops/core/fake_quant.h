#pragma once

#include <cstdint>

namespace qgraph {

// y = clip(round_half_even(x * 2^f), low, high) * 2^-f for whole low <= high and |f| <= 126.
// NaN stays NaN and a zero comes out positive. y may be x itself, but not overlap it otherwise.
void fake_quant(const float* x, float* y, int64_t count, int f, float low, float high);

}  // namespace qgraph
