#pragma once

// Simple implementations for any type, for ops that kernels do not support and to test the kernels.

#include <cstdint>
#include <vector>

#include "engine/network.h"

namespace qgraph::engine {

// A tensor and its address in a run.
struct Place {
    void* data;
    Storage storage;
    Shape shape;
};

// Convolution with w [height, width, inputs, outputs], in 64 bits. For a depthwise convolution, w
// is [height, width, channels, multiplier].
struct PlainConv {
    Window window;
    int64_t groups;
    bool depthwise;
    std::vector<int64_t> weights;
    int64_t out_channels;
    Place x;
    Place y;
};

// Computes pixels begin..end, counted over all images; there are `pixels` in total.
void run(const PlainConv& conv, int64_t begin, int64_t end);

void max_pool(const Window& window, const Place& x, const Place& y, int64_t begin, int64_t end);

// The maximum over `axes`, which are sorted.
void reduce_max(const std::vector<int64_t>& axes, const Place& x, const Place& y);

// Element `index` of y is element `begin + sum(index * stride)` of x.
void copy(const Place& x, int64_t begin, const std::vector<int64_t>& strides, const Place& y);

// Writes x into the part of y that begins at `begin` and has the shape of x.
void insert(const Place& x, const Place& y, const std::vector<int64_t>& begin);

// Rows `begin` to `end` of the products of matrices, in the order of y; axes in front of the last
// two are broadcast. narrow: 32 bits hold every partial sum.
void multiply(const Place& a, const Place& b, const Place& y, bool narrow, int64_t begin,
              int64_t end);

// Rows `begin` to `end` of a softmax: table entries by the distance from the largest code, divided
// by their sum, with `bits` fractional bits and codes up to `high`.
void softmax(const std::vector<int64_t>& table, int64_t bits, int64_t high, const Place& x,
             const Place& y, int64_t begin, int64_t end);

// Standardizes rows begin..end of x along the last axis, each separately (docs/numerics.md, 7).
void standardize(const Standard& numbers, const Place& x, const Place& y, int64_t begin,
                 int64_t end);

// The elements of x at `indices` along an axis.
void take(const Place& x, int64_t axis, const std::vector<int64_t>& indices, const Place& y);

// For each element of x, the row of a constant table with this index.
void copy_rows(const Place& x, const Tensor& table, const Place& y);

// The distance between neighbours along each dimension, in elements.
std::vector<int64_t> dense_strides(const Shape& shape);

}  // namespace qgraph::engine
