#include "core/depthwise_conv.h"

#include <algorithm>

#include "core/parallel.h"
#include "core/unrolled.h"

namespace qgraph {
namespace {

constexpr int64_t kGrainMultiplies = 1 << 22;

// Taps [first, last) of one axis that fall inside the image, for an output whose first tap is at
// `start`.
struct Taps {
    int64_t first, last;

    Taps(int64_t start, int64_t dilation, int64_t taps, int64_t size) {
        const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
        first = start >= 0 ? 0 : std::min(ceil_div(-start, dilation), taps);
        last = start < size ? std::clamp(ceil_div(size - start, dilation), first, taps) : first;
    }
};

// What one output is made of: the taps inside the image.
struct Patch {
    const float* x;
    const float* w;
    int64_t rows, columns;
    int64_t x_row, x_column;  // numbers from one tap to the next
    int64_t w_row, w_column;
};

typedef float Sum __attribute__((vector_size(32)));
typedef float Unaligned __attribute__((vector_size(32), aligned(4), may_alias));
constexpr int64_t kSum = 8;

// The sums of Count vectors of channels from `channel` on, which stay in registers.
template <int Count>
__attribute__((always_inline)) inline void add_up(const Patch& patch, int64_t channel, float* y) {
    Sum sums[Count] = {};
    for (int64_t row = 0; row < patch.rows; ++row) {
        const float* x = patch.x + row * patch.x_row + channel;
        const float* w = patch.w + row * patch.w_row + channel;
        for (int64_t column = 0; column < patch.columns; ++column) {
            unrolled<Count>([&](auto i) {
                sums[i] += *reinterpret_cast<const Unaligned*>(x + i * kSum) *
                           *reinterpret_cast<const Unaligned*>(w + i * kSum);
            });
            x += patch.x_column;
            w += patch.w_column;
        }
    }
    unrolled<Count>(
        [&](auto i) { *reinterpret_cast<Unaligned*>(y + channel + i * kSum) = sums[i]; });
}

QGRAPH_DISPATCH void convolve_pixel(const Patch& patch, int64_t channels, float* y) {
    int64_t channel = 0;
    for (; channel + 4 * kSum <= channels; channel += 4 * kSum) add_up<4>(patch, channel, y);
    for (; channel + kSum <= channels; channel += kSum) add_up<1>(patch, channel, y);
    for (; channel < channels; ++channel) {
        float sum = 0.0f;
        for (int64_t row = 0; row < patch.rows; ++row) {
            const float* x = patch.x + row * patch.x_row + channel;
            const float* w = patch.w + row * patch.w_row + channel;
            for (int64_t column = 0; column < patch.columns; ++column) {
                sum += x[column * patch.x_column] * w[column * patch.w_column];
            }
        }
        y[channel] = sum;
    }
}

void convolve_row(const float* image, const float* w, float* y, int64_t out_row,
                  const DepthwiseShape& s) {
    const int64_t top = out_row * s.stride_h - s.pad_top;
    const Taps rows(top, s.dilation_h, s.kernel_h, s.height);
    Patch patch{};
    patch.rows = rows.last - rows.first;
    patch.x_row = s.dilation_h * s.width * s.channels;
    patch.x_column = s.dilation_w * s.channels;
    patch.w_row = s.kernel_w * s.channels;
    patch.w_column = s.channels;
    for (int64_t column = 0; column < s.out_w; ++column) {
        const int64_t left = column * s.stride_w - s.pad_left;
        const Taps columns(left, s.dilation_w, s.kernel_w, s.width);
        patch.columns = columns.last - columns.first;
        const int64_t x_row = top + rows.first * s.dilation_h;
        const int64_t x_column = left + columns.first * s.dilation_w;
        patch.x = image + (x_row * s.width + x_column) * s.channels;
        patch.w = w + (rows.first * s.kernel_w + columns.first) * s.channels;
        convolve_pixel(patch, s.channels, y + column * s.channels);
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
