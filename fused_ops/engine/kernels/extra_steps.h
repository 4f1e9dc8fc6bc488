#pragma once

// Multiplication of bytes in pairs (vpmaddubsw, smull and smlal). The sum of two products is a
// word, and words are summed over a chunk of one or two steps. A word holds the sum if, in each
// chunk, its weights add up to little enough. Any excess is moved from the weights to an extra
// step, which repeats that step alone, with the excess as its weights. Most trained weights are
// small, so there are few extra steps.

#include <cstdint>
#include <vector>

namespace qgraph::engine::kernels {

// Which weights a word sums, and how large they may be.
struct PairForm {
    int64_t apart;  // bytes between the weights of a pair
    int most;       // largest sum of weights of a word
    bool by_sign;   // positive and negative weights are summed alone; else all magnitudes are
};
constexpr PairForm kNoPairs{};
// Neighbouring bytes times unsigned codes: 255 * 128 fits into a word.
constexpr PairForm kUnsignedPairs{1, 128, true};
// Weights in halves (Products::split_bytes) times signed codes: 128 * 255 fits into a word.
constexpr PairForm kSignedHalves{8, 255, false};

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
                            int64_t steps, int64_t width, const PairForm& form);

// True if words hold the products of all pairs of weights and, if `shifted`, those of the weights
// moved by one tap (moved_down in adjacent_body.h).
bool fit_words(const int8_t* weights, int64_t count, bool shifted, const PairForm& form);

}  // namespace qgraph::engine::kernels
