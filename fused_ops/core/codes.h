#pragma once

#include <cstdint>

namespace qgraph {

// How codes of at most 8 bits are stored in a byte each, as two's complement if they are signed.
struct ByteCodes {
    int32_t f;  // a value is its code times 2^-f, |f| <= 126
    int32_t bits;
    bool is_signed;
};

// codes = x * 2^f. x lies on the grid of codes; other values become codes of the range.
void pack_codes(const float* x, uint8_t* codes, int64_t count, const ByteCodes& form);

// x = codes * 2^-f. A zero is positive.
void unpack_codes(const uint8_t* codes, float* x, int64_t count, const ByteCodes& form);

}  // namespace qgraph
