#pragma once

#include <cstdint>

namespace qgraph {

// sums[c] = the sum of x[row * channels + c] over all rows, in float64, row after row from the
// first.
void channel_sums(const float* x, int64_t rows, int64_t channels, double* sums);

// The same of the squares of x[row * channels + c] - centre[c].
void channel_squares(const float* x, const double* centre, int64_t rows, int64_t channels,
                     double* sums);

// Number of sums, from one value to the next, that `squares` adds up in turn.
constexpr int64_t kSquareLanes = 32;

struct Squares {
    double signal;
    double noise;
};

// The sums of x^2 and of (y - x)^2, in float64. Values i, i + kSquareLanes, ... are added up in
// their order, then the lanes from the first to the last.
Squares squares(const float* x, const float* y, int64_t count);

}  // namespace qgraph
