#include "core/depthwise_conv.h"

#include <algorithm>

#include "core/parallel.h"

namespace qgraph {
namespace {

constexpr int64_t kGrainMultiplies = 1 << 22;

// Output columns [first, last) whose tap at column offset `shift` is inside the image.
struct Columns {
    int64_t first, last;
};

Columns inside(const DepthwiseShape& s, int64_t shift) {
    const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    const int64_t first = shift >= 0 ? 0 : ceil_div(-shift, s.stride_w);
    const int64_t last = shift < s.width ? ceil_div(s.width - shift, s.stride_w) : 0;
    return {first, std::min(last, s.out_w)};
}

// Adds one tap to a row of outputs; consecutive outputs read x_step values apart.
QGRAPH_DISPATCH void add_tap(const float* __restrict x, const float* __restrict w,
                             float* __restrict y, int64_t columns, int64_t x_step,
                             int64_t channels) {
    for (int64_t column = 0; column < columns; ++column) {
        const float* x_pixel = x + column * x_step;
        float* y_pixel = y + column * channels;
        for (int64_t c = 0; c < channels; ++c) y_pixel[c] += x_pixel[c] * w[c];
    }
}

void convolve_row(const float* image, const float* w, float* y, int64_t out_row,
                  const DepthwiseShape& s) {
    std::fill(y, y + s.out_w * s.channels, 0.0f);
    for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
        const int64_t row = out_row * s.stride_h - s.pad_top + kh * s.dilation_h;
        if (row < 0 || row >= s.height) continue;
        for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
            const int64_t shift = kw * s.dilation_w - s.pad_left;
            const Columns columns = inside(s, shift);
            if (columns.first >= columns.last) continue;
            const int64_t column = columns.first * s.stride_w + shift;
            add_tap(image + (row * s.width + column) * s.channels,
                    w + (kh * s.kernel_w + kw) * s.channels, y + columns.first * s.channels,
                    columns.last - columns.first, s.stride_w * s.channels, s.channels);
        }
    }
}

}  // namespace

void depthwise_conv(const float* x, const float* w, float* y, const DepthwiseShape& s) {
    const int64_t row_size = s.out_w * s.channels;
    const int64_t row_work = std::max<int64_t>(row_size * s.kernel_h * s.kernel_w, 1);
    const int64_t grain = std::max<int64_t>(kGrainMultiplies / row_work, 1);
    parallel_ranges(s.batch * s.out_h, grain, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
            const float* image = x + (row / s.out_h) * s.height * s.width * s.channels;
            convolve_row(image, w, y + row * row_size, row % s.out_h, s);
        }
    });
}

}  // namespace qgraph
