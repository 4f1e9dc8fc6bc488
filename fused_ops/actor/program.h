#pragma once

// The content of a block after it was checked: running it never leaves the block's memory.

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "actor/kernels.h"
#include "actor/ops.h"

namespace qgraph::actor {

// The reason why a block is refused.
struct Refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// For an op that a part of the actor lacks: names both. A `switch` over ops fails to compile
// earlier.
[[noreturn]] void no_case(Op op, const char* place);

struct Shape {
    int rank;
    std::array<int64_t, 4> dims;
    int64_t size() const;
    int64_t last() const { return dims[static_cast<size_t>(rank - 1)]; }
    bool operator==(const Shape& other) const;
};

struct Weight {
    Shape shape;
    Storage storage;
    int bits;
    int64_t data, scale, sums;  // from the beginning of a block

    bool is_kernel() const { return shape.rank > 1; }
    int64_t segments() const { return shape.rank == 4 ? shape.dims[0] : 1; }
    int64_t length() const { return shape.size() / shape.last() / segments(); }
    bool exact() const { return storage == Storage::int8 || storage == Storage::int4; }
    Panels in(const char* block) const;
};

struct Step {
    Op op;
    Activation activation;
    float alpha, epsilon;
    uint32_t output;
    std::vector<uint32_t> inputs;
    std::array<uint32_t, 2> weights;
    std::array<int64_t, 2> strides, ksize;
    std::array<int64_t, 4> pads;  // format.h names the uses of these fields
};

struct Program {
    std::vector<Shape> values;  // the observation is the first
    std::vector<Weight> weights;
    std::vector<Step> steps;
    std::vector<uint32_t> outputs;
    int64_t size;    // of a block
    int64_t tables;  // bytes before the data
};

// Throws Refusal. Magic and checksum are not checked.
Program parse(const char* block, int64_t size);

// Both are multiples of kAlignment. The checksum field of the header is included unchanged.
uint64_t part_of_checksum(const char* block, int64_t begin, int64_t end, Level level);

uint64_t checksum(const char* block, int64_t size, Level level);

}  // namespace qgraph::actor
