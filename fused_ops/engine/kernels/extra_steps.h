#pragma once

// Multiplication of bytes in pairs (vpmaddubsw). The sum of two products is a word, and words are
// summed over a chunk of one or two steps. A word holds the sum if, in each chunk, its weights of
// one sign add up to at most 128, since 255 * 128 fits. Any excess is moved from the weights to an
// extra step, which repeats that step alone, with the excess as its weights. Most trained weights
// are small, so there are few extra steps.

#include <cstdint>
#include <vector>

namespace qgraph::engine::kernels {

// Sums that are computed together: the beginning of their weights, and the bytes of a step.
struct Together {
    int64_t at;
    int64_t bytes;
};

struct ExtraSteps {
    int64_t chunk = 1;           // steps whose products are summed in words
    std::vector<int64_t> first;  // of each Together; the last element is the total
    std::vector<int32_t> steps;
    std::vector<int8_t> weights;  // `width` bytes for each extra step
    double cost = 0;  // per step; the unit is a step in chunks of one, without an extra one
};

// Moves the excess from the weights to extra steps and returns these. The chunk length is the
// cheapest one. `width` is the largest size of a step in bytes.
ExtraSteps make_extra_steps(std::vector<int8_t>& weights, const std::vector<Together>& all,
                            int64_t steps, int64_t width);

// True if words hold the products of the first two and of the last two of each four weights and, if
// `shifted`, those of the middle two.
bool fit_words(const int8_t* weights, int64_t count, bool shifted);

}  // namespace qgraph::engine::kernels
