#pragma once

// Conversion at the ends of a network: floats to codes, and codes to floats.

#include <cstdint>

#include "core/quantize.h"
#include "engine/storage.h"

namespace qgraph::engine {

// Codes are clip(round(x * 2^exponent), low, high). |exponent| <= 126, and float32 holds all codes
// exactly.
struct FloatEntry {
    int32_t exponent;
    float low, high;
    Rounding rounding;
};

// False if there is a NaN; its code is then undefined.
bool to_codes(const float* x, int64_t count, const FloatEntry& entry, Storage type, void* codes);

// codes * 2^-exponent, rounded to float32 once.
void to_floats(const void* codes, int64_t count, Storage type, int32_t exponent, float* y);

}  // namespace qgraph::engine
