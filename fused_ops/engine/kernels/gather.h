// The matrix form of a convolution: rows of input codes, one for each output pixel. Included once
// by each level.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/kernels/layer.h"

namespace qgraph::engine::kernels {
namespace {

// Where pixels of the output have their windows.
struct Window {
    int64_t image, top, left;
};

inline Window window_of(const Conv& s, int64_t pixel) {
    const int64_t column = pixel % s.out_width;
    const int64_t row = pixel / s.out_width;
    return {row / s.out_height, row % s.out_height * s.stride_height - s.pad_top,
            column * s.stride_width - s.pad_left};
}

// Copies `size` bytes, and more up to a multiple of 16 where `end` shows that they can be read.
// What is copied too much is overwritten by what comes next.
inline void copy_over(char* to, const char* from, int64_t size, const char* end) {
    if (from + size + 15 >= end) {
        std::memcpy(to, from, static_cast<size_t>(size));
        return;
    }
    for (int64_t i = 0; i < size; i += 16) std::memcpy(to + i, from + i, 16);
}

class Gather {
  public:
    Gather(const Layer& layer, const char* x, int64_t group, int64_t last_pixel)
        : layer_(layer),
          s_(layer.conv),
          size_(size_of(s_.x)),
          inputs_(s_.channels / s_.groups),
          x_(x + group * inputs_ * size_),
          end_(x + (window_of(s_, last_pixel).image + 1) * s_.height * s_.width * s_.channels *
                       size_) {}

    // Rows of pixels [begin, end), one after the other. Up to 16 bytes are written past their end.
    void run(int64_t begin, int64_t end, char* to) const {
        const bool widens = layer_.words && size_ == 1;
        for (int64_t pixel = begin; pixel < end; ++pixel, to += layer_.row) {
            if (widens) {
                // Bytes are gathered in the upper half, and widened from there.
                char* bytes = to + layer_.row / 2;
                gather(window_of(s_, pixel), bytes);
                widen(to, bytes);
            } else {
                gather(window_of(s_, pixel), to);
                flip(to);
            }
        }
    }

  private:
    void gather(const Window& w, char* to) const {
        const int64_t tap = inputs_ * size_;
        const int64_t bottom = w.top + (s_.kernel_height - 1) * s_.dilation_height;
        const int64_t right = w.left + (s_.kernel_width - 1) * s_.dilation_width;
        const bool inside = w.top >= 0 && w.left >= 0 && bottom < s_.height && right < s_.width;
        const bool joined = s_.groups == 1 && s_.dilation_width == 1;
        for (int64_t ky = 0; ky < s_.kernel_height; ++ky) {
            const int64_t iy = w.top + ky * s_.dilation_height;
            const char* line = x_ + (w.image * s_.height + iy) * s_.width * s_.channels * size_;
            const auto at = [&](int64_t ix) { return line + ix * s_.channels * size_; };
            if (inside && joined) {
                copy_over(to, at(w.left), s_.kernel_width * tap, end_);
                to += s_.kernel_width * tap;
                continue;
            }
            for (int64_t kx = 0; kx < s_.kernel_width; ++kx, to += tap) {
                const int64_t ix = w.left + kx * s_.dilation_width;
                if (iy >= 0 && iy < s_.height && ix >= 0 && ix < s_.width) {
                    copy_over(to, at(ix), tap, end_);
                } else {
                    std::memset(to, 0, static_cast<size_t>(tap));
                }
            }
        }
    }

    void flip(char* row) const {
        if (layer_.flip == 0) return;
        for (int64_t i = 0; i < layer_.steps; ++i) {
            uint32_t four;
            std::memcpy(&four, row + i * 4, 4);
            four ^= layer_.flip;
            std::memcpy(row + i * 4, &four, 4);
        }
    }

    void widen(char* to, const char* bytes) const {
        const int64_t count = s_.kernel_height * s_.kernel_width * inputs_;
        for (int64_t i = 0; i < count; ++i) {
            const auto code = static_cast<uint8_t>(bytes[i]);
            const int16_t wide = s_.x == Code::s8 ? static_cast<int8_t>(code) : code;
            std::memcpy(to + i * 2, &wide, 2);
        }
    }

    const Layer& layer_;
    const Conv& s_;
    int64_t size_;
    int64_t inputs_;
    const char* x_;
    const char* end_;  // of the images that are there for sure
};

}  // namespace
}  // namespace qgraph::engine::kernels
