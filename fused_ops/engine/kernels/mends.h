#pragma once

// Bytes that are multiplied two at a time (vpmaddubsw): the sum of both products is a word, and so
// are sums of these over a chunk of two steps. Words hold them where in each chunk the weights of
// one sign that a word adds up are 128 at most: 255 * 128 fits. What is beyond that is taken off
// the weights, and added by a mend: that step once more, alone, with the rest for its weights.
// Trained weights are small except a few, so there are few mends.

#include <cstdint>
#include <vector>

namespace qgraph::engine::kernels {

// Sums that are computed together: where their weights begin, and bytes of a step.
struct Together {
    int64_t at;
    int64_t bytes;
};

struct Mends {
    int64_t chunk = 1;           // steps whose products are added up in words
    std::vector<int64_t> first;  // of each Together; one more is their count
    std::vector<int32_t> steps;
    std::vector<int8_t> weights;  // `width` bytes for each
    double cost = 0;              // of a step, in steps without mends in chunks of one
};

// Takes off the weights what words do not hold, and returns that. Chunks are as long as pays.
// width: the most bytes that a step has.
Mends make_mends(std::vector<int8_t>& weights, const std::vector<Together>& all, int64_t steps,
                 int64_t width);

// Whether words hold products of the first two and the last two of each four weights; and, where
// they are `shifted`, of the two in the middle.
bool fit_words(const int8_t* weights, int64_t count, bool shifted);

}  // namespace qgraph::engine::kernels
