// Generated from qgraph/rl/actor/ops by `make golden`. Do not edit: a test compares them.
#pragma once

#include <cstdint>

namespace qgraph::actor {

// The numbers are those of `.qga` files.
enum class Op : uint32_t {
    dense = 0,
    conv = 1,
    affine = 2,
    clip = 3,
    layer_norm = 4,
    activate = 5,
    center = 6,
    softmax = 7,
    max_pool = 8,
    add = 9,
    multiply = 10,
    concat = 11,
    flatten = 12,
    slice = 13,
    reshape = 14,
    transpose = 15,
    sum = 16,
    matmul = 17,
    avg_pool = 18,
};
constexpr uint32_t kOps = 19;

enum class Activation : uint32_t {
    linear = 0,
    relu = 1,
    leaky_relu = 2,
    elu = 3,
    tanh = 4,
    sigmoid = 5,
    softplus = 6,
    swish = 7,
    exp = 8,
    sign = 9,
    erf = 10,
};
constexpr uint32_t kActivations = 11;

struct OpFacts {
    const char* name;
    uint32_t inputs;
    bool more_inputs;  // `inputs` or more
    uint32_t weights;
    bool layer;  // the first weight is a kernel
};
constexpr OpFacts kOpFacts[kOps] = {
    {"dense", 1, false, 2, true},        // x; kernel, bias
    {"conv", 1, false, 2, true},         // x; kernel, bias
    {"affine", 1, false, 2, false},      // x; scale, offset
    {"clip", 1, false, 2, false},        // x; low, high
    {"layer_norm", 1, false, 2, false},  // x; gamma, beta
    {"activate", 1, false, 0, false},    // x
    {"center", 1, false, 0, false},      // x
    {"softmax", 1, false, 0, false},     // x
    {"max_pool", 1, false, 0, false},    // x
    {"add", 2, false, 0, false},         // a, b
    {"multiply", 2, false, 0, false},    // a, b
    {"concat", 1, true, 0, false},       // x...
    {"flatten", 1, false, 0, false},     // x
    {"slice", 1, false, 0, false},       // x
    {"reshape", 1, false, 0, false},     // x
    {"transpose", 1, false, 0, false},   // x
    {"sum", 1, false, 0, false},         // x
    {"matmul", 2, false, 0, false},      // a, b
    {"avg_pool", 1, false, 0, false},    // x
};

constexpr const OpFacts& facts_of(Op op) { return kOpFacts[static_cast<uint32_t>(op)]; }
constexpr const char* name_of(Op op) { return facts_of(op).name; }

}  // namespace qgraph::actor
