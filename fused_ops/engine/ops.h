// Generated from qgraph/program/ops by `make golden`. Do not edit: a test compares them.
#pragma once

#include <cstdint>

namespace qgraph::engine {

// The numbers are those of `.qgi` files.
enum class Op : uint32_t {
    conv2d = 0,
    depthwise_conv2d = 1,
    matmul = 2,
    add = 3,
    sub = 4,
    mul = 5,
    maximum = 6,
    minimum = 7,
    clip = 8,
    requantize = 9,
    lookup = 10,
    max_pool = 11,
    reduce_max = 12,
    reshape = 13,
    transpose = 14,
    slice = 15,
    concat = 16,
    pad = 17,
    take = 18,
    standardize = 19,
    abs = 20,
    batch_matmul = 21,
    softmax = 22,
    embedding = 23,
};
constexpr uint32_t kOps = 24;

// The loop that an op needs.
enum class Family : uint8_t {
    product,    // sums of products
    matrix,     // products of matrices
    row,        // rows of channels
    binary,     // two operands, element by element
    unary,      // one element at a time
    reduction,  // a reduction over axes
    move,       // moves elements
    reshape,    // gives elements another shape
};

// The ops of each family: a `switch` that misses one does not compile.
enum class ProductOp : uint32_t {
    conv2d = 0,
    depthwise_conv2d = 1,
    matmul = 2,
};
constexpr ProductOp as_product(Op op) { return static_cast<ProductOp>(op); }

enum class MatrixOp : uint32_t {
    batch_matmul = 21,
};
constexpr MatrixOp as_matrix(Op op) { return static_cast<MatrixOp>(op); }

enum class RowOp : uint32_t {
    max_pool = 11,
    standardize = 19,
    softmax = 22,
};
constexpr RowOp as_row(Op op) { return static_cast<RowOp>(op); }

enum class BinaryOp : uint32_t {
    add = 3,
    sub = 4,
    mul = 5,
    maximum = 6,
    minimum = 7,
};
constexpr BinaryOp as_binary(Op op) { return static_cast<BinaryOp>(op); }

enum class UnaryOp : uint32_t {
    clip = 8,
    requantize = 9,
    lookup = 10,
    abs = 20,
};
constexpr UnaryOp as_unary(Op op) { return static_cast<UnaryOp>(op); }

enum class ReductionOp : uint32_t {
    reduce_max = 12,
};
constexpr ReductionOp as_reduction(Op op) { return static_cast<ReductionOp>(op); }

enum class MoveOp : uint32_t {
    transpose = 14,
    slice = 15,
    concat = 16,
    pad = 17,
    take = 18,
    embedding = 23,
};
constexpr MoveOp as_move(Op op) { return static_cast<MoveOp>(op); }

enum class ReshapeOp : uint32_t {
    reshape = 13,
};
constexpr ReshapeOp as_reshape(Op op) { return static_cast<ReshapeOp>(op); }

struct OpFacts {
    const char* name;
    Family family;
    uint32_t inputs;
    bool more_inputs;  // `inputs` or more
};
constexpr OpFacts kOpFacts[kOps] = {
    {"conv2d", Family::product, 2, false},
    {"depthwise_conv2d", Family::product, 2, false},
    {"matmul", Family::product, 2, false},
    {"add", Family::binary, 2, false},
    {"sub", Family::binary, 2, false},
    {"mul", Family::binary, 2, false},
    {"maximum", Family::binary, 2, false},
    {"minimum", Family::binary, 2, false},
    {"clip", Family::unary, 1, false},
    {"requantize", Family::unary, 1, false},
    {"lookup", Family::unary, 2, false},
    {"max_pool", Family::row, 1, false},
    {"reduce_max", Family::reduction, 1, false},
    {"reshape", Family::reshape, 1, false},
    {"transpose", Family::move, 1, false},
    {"slice", Family::move, 1, false},
    {"concat", Family::move, 1, true},
    {"pad", Family::move, 1, false},
    {"take", Family::move, 1, false},
    {"standardize", Family::row, 1, false},
    {"abs", Family::unary, 1, false},
    {"batch_matmul", Family::matrix, 2, false},
    {"softmax", Family::row, 2, false},
    {"embedding", Family::move, 2, false},
};

constexpr const OpFacts& facts_of(Op op) { return kOpFacts[static_cast<uint32_t>(op)]; }
constexpr Family family_of(Op op) { return facts_of(op).family; }
constexpr const char* name_of(Op op) { return facts_of(op).name; }

}  // namespace qgraph::engine
