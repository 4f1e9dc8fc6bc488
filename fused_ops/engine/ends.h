#pragma once

// The ends of a network: floats that become codes, and codes that become floats.

#include <cstdint>

#include "core/quantize.h"
#include "engine/storage.h"

namespace qgraph::engine {

// Codes are clip(round(x * 2^exponent), low, high); |exponent| <= 126, and all are exact in
// float32.
struct FloatEntry {
    int32_t exponent;
    float low, high;
    Rounding rounding;
};

// False where there is a NaN, whose code means nothing.
bool to_codes(const float* x, int64_t count, const FloatEntry& entry, Storage type, void* codes);

// codes * 2^-exponent, rounded to float32 once.
void to_floats(const void* codes, int64_t count, Storage type, int32_t exponent, float* y);

}  // namespace qgraph::engine
