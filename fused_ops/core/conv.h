#pragma once

#include <cstdint>

namespace qgraph {

// Images are [batch, height, width, channels], filters [kernel_h, kernel_w, channels / groups,
// outputs], both in C order. Padding is 0.
struct ConvShape {
    int64_t batch, height, width, channels;
    int64_t kernel_h, kernel_w, outputs, groups;
    int64_t stride_h, stride_w;
    int64_t dilation_h, dilation_w;
    int64_t pad_top, pad_left;
    int64_t out_h, out_w;
};

// The products of an output are divided into blocks of this many. The order of the sum is defined:
// within a block, starting from zero, s = fma(x, w, s) in the order of (kernel_h, kernel_w,
// channel); then the blocks are added from the first to the last.
constexpr int64_t kConvDepth = 256;

// Convolution of x with w into y [batch, out_h, out_w, outputs], in float32.
void conv2d(const float* x, const float* w, float* y, const ConvShape& shape);

}  // namespace qgraph
