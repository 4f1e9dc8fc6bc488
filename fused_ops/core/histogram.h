#pragma once

#include <cstdint>

namespace qgraph {

struct Range {
    float low;
    float high;  // low and high are NaN if any value is NaN
};

// The smallest and largest of count >= 1 values.
Range minmax(const float* x, int64_t count);

// Adds to bins[clip(floor(x * scale), -half, half - 1) + half], with half = 2^log2_bins <= 2^20
// and a scale that is a power of two. Zeros are not counted. Returns false if a value is NaN; the
// bins are then unspecified.
bool histogram(const float* x, int64_t count, double scale, int log2_bins, int64_t* bins);

struct Tails {
    int64_t below;
    int64_t above;
    int64_t small;
};

// The numbers of values below `low`, above `high`, and of a magnitude below `small`.
Tails tails(const float* x, int64_t count, double low, double high, double small);

}  // namespace qgraph
