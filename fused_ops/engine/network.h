#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/quantize.h"
#include "engine/ops.h"
#include "engine/storage.h"

namespace qgraph::engine {

// The reason why a file cannot be loaded.
struct LoadFailure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

constexpr int kMaxRank = 8;
using Shape = std::vector<int64_t>;

enum class Kind : uint8_t { computed, constant, entry };

struct Tensor {
    std::string_view name;
    Storage storage;
    Kind kind;
    Shape shape;
    int64_t low;
    int64_t high;
    int64_t magnitude;  // bound of partial sums
    const void* data;   // of a constant
};

// Throws LoadFailure for an op that a part of the engine has no case for; the message names both.
[[noreturn]] void no_case(Op op, const char* place);

// A window that slides over height and width.
struct Window {
    int64_t kernel[2];
    int64_t strides[2];
    int64_t dilations[2];
    int64_t pads[4];  // top, bottom, left, right

    int64_t span(int axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }
};

// The numbers of `standardize` (docs/numerics.md, 7): fractional bits of the root, epsilon in units
// of its squares, and the left shift of deviations before the division.
struct Standard {
    int64_t guard;
    int64_t epsilon;
    int64_t shift;
};

// One op. Each op uses some of the fields.
struct Step {
    Op op;
    std::vector<uint32_t> inputs;
    uint32_t output;
    Window window;
    int64_t groups;
    int64_t axis;               // concat, take
    int64_t offset;             // lookup
    std::vector<int64_t> lows;  // clip: none, one, or one for each channel
    std::vector<int64_t> highs;
    std::vector<int64_t> shifts;  // requantize: one, or one for each channel
    int64_t low;                  // requantize
    int64_t high;
    Rounding rounding;
    bool wrap;
    int64_t bits;                // softmax
    Standard standard;           // standardize
    std::vector<int64_t> list;   // perm, begins, paddings, indices, reduced axes
    std::vector<int64_t> steps;  // slice
};

struct Network {
    bool batch_free;
    std::vector<Tensor> tensors;
    std::vector<Step> steps;
    std::vector<uint32_t> entries;
    std::vector<uint32_t> exits;

    // The shape of a tensor in a run of `samples` samples.
    Shape shape(uint32_t tensor, int64_t samples) const;
};

// a * b, checked: sizes stay below 2^48.
int64_t product(const Shape& shape);

// Reads a file that is in memory; the network points into it. All content is checked before it is
// used: a manipulated file, even with a correct checksum, either gives LoadFailure or a network
// that runs within its memory.
Network parse(const void* file, uint64_t size);

// Reads the attributes of the op of `step`, and checks that the resulting shape equals the one in
// the file.
void read_attributes(Step& step, const std::vector<int64_t>& numbers, const Network& network);

}  // namespace qgraph::engine
