// The matrix form of a convolution: rows of input codes, one for each output pixel. Each level
// includes this once.

#pragma once

#include "engine/kernels/vectors.h"

namespace qgraph::engine::kernels {
namespace {

// The position of the window of an output pixel.
struct Window {
    int64_t image, top, left;
};

inline Window window_of(const Conv& s, int64_t pixel) {
    const int64_t column = pixel % s.out_width;
    const int64_t row = pixel / s.out_width;
    return {row / s.out_height, row % s.out_height * s.stride_height - s.pad_top,
            column * s.stride_width - s.pad_left};
}

// Copies `size` bytes, rounded up to a multiple of `chunk`. The next copy overwrites the surplus.
template <int chunk>
inline void copy_over(char* to, const char* from, int64_t size) {
    for (int64_t i = 0; i < size; i += chunk) std::memcpy(to + i, from + i, chunk);
}

class Gather {
  public:
    // All images up to the one of the last pixel can be read.
    Gather(const Layer& layer, const char* x, int64_t group, int64_t last_pixel)
        : layer_(layer),
          s_(layer.conv),
          tap_(s_.channels / s_.groups * size_of(s_.x)),
          pixel_(s_.channels * size_of(s_.x)),
          line_(s_.width * pixel_),
          joined_(s_.groups == 1 && s_.dilation_width == 1),
          segment_(joined_ ? tap_ * s_.kernel_width : tap_),
          contiguous_(is_contiguous(layer)),
          x_(x + group * tap_),
          end_(x + (window_of(s_, last_pixel).image + 1) * s_.height * line_) {}

    // Gathers the rows of pixels [begin, end). Up to kRegister bytes are written past their end.
    void run(int64_t begin, int64_t end, char* to) const {
        // Bytes that become words are gathered in the upper half of a row and widened from there.
        const bool widens = layer_.words && size_of(s_.x) == 1;
        if (contiguous_) return copy_flipped(x_ + begin * pixel_, to, (end - begin) * pixel_);
        char* at = widens ? to + layer_.row / 2 : to;
        if (segment_ <= 16) {
            pixels<16>(begin, end, at);
        } else if (segment_ <= 32) {
            pixels<32>(begin, end, at);
        } else {
            pixels<kRegister>(begin, end, at);
        }
        if (layer_.flip != 0) flip(to, (end - begin) * layer_.row);
        if (!widens) return;
        for (int64_t pixel = begin; pixel < end; ++pixel, to += layer_.row) {
            s_.x == Code::s8 ? widen<int8_t>(to) : widen<uint8_t>(to);
        }
    }

  private:
    // True if rows are those of x, apart from the sign of codes.
    static bool is_contiguous(const Layer& layer) {
        const Conv& s = layer.conv;
        return s.kernel_height == 1 && s.kernel_width == 1 && s.stride_height == 1 &&
               s.stride_width == 1 && s.pad_top == 0 && s.pad_left == 0 &&
               s.out_height == s.height && s.out_width == s.width && s.groups == 1 &&
               layer.row == s.channels * size_of(s.x);
    }

    void copy_flipped(const char* from, char* to, int64_t size) const {
        const auto pattern = (Bytes)fill(static_cast<int32_t>(layer_.flip));
        int64_t i = 0;
        for (; i + kRegister <= size; i += kRegister) {
            store(to + i, load<Bytes>(from + i) ^ pattern);
        }
        if (i < size) store(to + i, load_part(from + i, size - i) ^ pattern);
    }

    template <int chunk>
    void pixels(int64_t begin, int64_t end, char* to) const {
        const int64_t bottom = (s_.kernel_height - 1) * s_.dilation_height;
        const int64_t right = (s_.kernel_width - 1) * s_.dilation_width;
        // Bytes that may be read for one pixel, counted from the corner of its window.
        const int64_t reach = bottom * line_ + (joined_ ? 0 : right * pixel_) + segment_ + chunk;
        Window w = window_of(s_, begin);
        for (int64_t pixel = begin; pixel < end; ++pixel, to += layer_.row) {
            const char* corner = x_ + (w.image * s_.height + w.top) * line_ + w.left * pixel_;
            const bool inside = w.top >= 0 && w.left >= 0 && w.top + bottom < s_.height &&
                                w.left + right < s_.width;
            if (inside && reach <= end_ - corner) {
                inner<chunk>(corner, to);
            } else {
                careful(w, to);
            }
            w.left += s_.stride_width;
            if (w.left + s_.pad_left == s_.out_width * s_.stride_width)
                w = window_of(s_, pixel + 1);
        }
    }

    template <int chunk>
    void inner(const char* corner, char* to) const {
        const int64_t down = s_.dilation_height * line_;
        if (joined_) {
            for (int64_t ky = 0; ky < s_.kernel_height; ++ky, to += segment_, corner += down) {
                copy_over<chunk>(to, corner, segment_);
            }
            return;
        }
        const int64_t aside = s_.dilation_width * pixel_;
        for (int64_t ky = 0; ky < s_.kernel_height; ++ky, corner += down) {
            for (int64_t kx = 0; kx < s_.kernel_width; ++kx, to += tap_) {
                copy_over<chunk>(to, corner + kx * aside, tap_);
            }
        }
    }

    // Checks each tap and reads no byte outside of the image.
    void careful(const Window& w, char* to) const {
        for (int64_t ky = 0; ky < s_.kernel_height; ++ky) {
            const int64_t iy = w.top + ky * s_.dilation_height;
            const char* line = x_ + (w.image * s_.height + iy) * line_;
            for (int64_t kx = 0; kx < s_.kernel_width; ++kx, to += tap_) {
                const int64_t ix = w.left + kx * s_.dilation_width;
                if (iy >= 0 && iy < s_.height && ix >= 0 && ix < s_.width) {
                    std::memcpy(to, line + ix * pixel_, static_cast<size_t>(tap_));
                } else {
                    std::memset(to, 0, static_cast<size_t>(tap_));
                }
            }
        }
    }

    void flip(char* to, int64_t size) const {
        const Ints pattern = fill(static_cast<int32_t>(layer_.flip));
        for (int64_t i = 0; i < size; i += kRegister) {
            store(to + i, load<Ints>(to + i) ^ pattern);
        }
    }

    // Each iteration reads its bytes before it writes words, which may overlap them.
    template <class Byte>
    void widen(char* row) const {
        constexpr int64_t some = 16;
        const char* from = row + layer_.row / 2;
        const int64_t count = s_.kernel_height * s_.kernel_width * tap_;
        int64_t i = 0;
        for (; i + some <= count; i += some) widen_some<Byte, some>(from + i, row + 2 * i);
        for (; i < count; ++i) widen_some<Byte, 1>(from + i, row + 2 * i);
    }

    template <class Byte, int64_t count>
    static void widen_some(const char* from, char* to) {
        Byte bytes[count];
        int16_t words[count];
        std::memcpy(bytes, from, sizeof bytes);
        for (int64_t i = 0; i < count; ++i) words[i] = bytes[i];
        std::memcpy(to, words, sizeof words);
    }

    const Layer& layer_;
    const Conv& s_;
    int64_t tap_, pixel_, line_;  // sizes in bytes of a tap, a pixel and a line of x
    bool joined_;                 // the taps of a line are contiguous
    int64_t segment_;             // bytes per copy
    bool contiguous_;
    const char* x_;
    const char* end_;
};

}  // namespace
}  // namespace qgraph::engine::kernels
