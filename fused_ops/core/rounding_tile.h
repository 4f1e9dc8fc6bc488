#pragma once

#include <cstdint>

namespace qgraph {

// Columns that are rounded side by side.
constexpr int64_t kRoundingColumns = 32;

// sums[row] += factors[row, which[i]] * panel[i], for each of `rows` rows and i from 0 to count.
struct RoundingTile {
    const double* factors;  // rows are `stride` numbers apart
    int64_t stride;
    const int32_t* which;  // [count]
    const double* panel;   // [count, kRoundingColumns]
    int64_t count;
    double* sums;  // [rows, kRoundingColumns]
    int64_t rows;
};

using RoundingKernel = void (*)(const RoundingTile&);

}  // namespace qgraph
