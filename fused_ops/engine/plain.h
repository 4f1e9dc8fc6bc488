#pragma once

// Plain ops on any type: for what the kernels do not take, and to compare them with.

#include <cstdint>
#include <vector>

#include "engine/network.h"

namespace qgraph::engine {

// A tensor where it is in a run.
struct Place {
    void* data;
    Storage storage;
    Shape shape;
};

// Convolution with w [height, width, inputs, outputs], in 64 bits. Where it is depthwise, w is
// [height, width, channels, multiplier].
struct PlainConv {
    Window window;
    int64_t groups;
    bool depthwise;
    std::vector<int64_t> weights;
    int64_t out_channels;
    Place x;
    Place y;
};

// Computes pixels begin..end of all images, in order; there are `pixels`.
void run(const PlainConv& conv, int64_t begin, int64_t end);

void max_pool(const Window& window, const Place& x, const Place& y, int64_t begin, int64_t end);

// The maximum over `axes`, which are in order.
void reduce_max(const std::vector<int64_t>& axes, const Place& x, const Place& y);

// y gets the elements of x: `begin + sum(index * stride)`, by the shape of y; counted in elements.
void copy(const Place& x, int64_t begin, const std::vector<int64_t>& strides, const Place& y);

// The part of y that begins at `begin` and has the shape of x gets x.
void insert(const Place& x, const Place& y, const std::vector<int64_t>& begin);

// Rows begin..end of x along its last axis, each for itself, by docs/numerics.md, 7.
void standardize(const Standard& numbers, const Place& x, const Place& y, int64_t begin,
                 int64_t end);

// x at `indices` along an axis.
void take(const Place& x, int64_t axis, const std::vector<int64_t>& indices, const Place& y);

// Elements between neighbours along each dimension.
std::vector<int64_t> dense_strides(const Shape& shape);

}  // namespace qgraph::engine
