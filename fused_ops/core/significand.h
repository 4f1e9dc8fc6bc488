#pragma once

#include <cstdint>

namespace qgraph {

constexpr int kMaxSignificand = 10;  // that of float16

// Rounds to a format with `bits` significand bits (1 to 10, without the leading one) and 5 exponent
// bits, by the rules of IEEE 754: ties to even, subnormal below 2^-14, infinity where 2^16 would be
// the nearest. With 10 bits it is float16. Zeros keep their sign, and NaN stays NaN. y may equal x
// but not overlap it otherwise.
void round_significand(const float* x, float* y, int64_t count, int bits);

// The same for float16, given as bits.
void round_significand(const uint16_t* x, uint16_t* y, int64_t count, int bits);

}  // namespace qgraph
