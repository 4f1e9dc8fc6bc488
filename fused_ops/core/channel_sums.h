#pragma once

#include <cstdint>

namespace qgraph {

// sums[c] = the sum of x[row * channels + c] over all rows, in float64, row after row from the
// first.
void channel_sums(const float* x, int64_t rows, int64_t channels, double* sums);

}  // namespace qgraph
