#pragma once

#include <cstdint>

namespace qgraph {

struct DepthwiseShape {
    int64_t batch, height, width, channels;
    int64_t kernel_h, kernel_w;
    int64_t stride_h, stride_w;
    int64_t dilation_h, dilation_w;
    int64_t pad_top, pad_left;
    int64_t out_h, out_w;
};

// Depthwise convolution of x [n, h, w, c] with w [kh, kw, c] into y [n, oh, ow, c]. Each output
// is summed in float32, from zero, over the taps inside the image in the order of (kh, kw).
void depthwise_conv(const float* x, const float* w, float* y, const DepthwiseShape& shape);

}  // namespace qgraph
