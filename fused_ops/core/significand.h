#pragma once

#include <cstdint>

namespace qgraph {

constexpr int kMaxSignificand = 10;  // that of float16

// Rounds to the numbers of `bits` significand bits (1 to 10, the leading one not counted) and 5
// exponent bits, as IEEE 754 has them: half to even, subnormal below 2^-14, infinite from where
// 2^16 is the nearest. With 10 bits it is float16. Zeros keep their sign and NaN stays NaN. y may
// be x itself, but not overlap it otherwise.
void round_significand(const float* x, float* y, int64_t count, int bits);

// The same of float16, on its bits.
void round_significand(const uint16_t* x, uint16_t* y, int64_t count, int bits);

}  // namespace qgraph
