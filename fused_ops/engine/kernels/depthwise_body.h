// Depthwise convolutions of bytes with one output for each channel. Four taps at a time are
// interleaved, so that the four bytes of a sum are adjacent. With 16-bit weights, two taps are
// interleaved with zeros, which widens them to words. Each level includes this once, after it has
// defined interleave_bytes and interleave_words.

#pragma once

#include "engine/kernels/depthwise_columns_body.h"
#include "engine/kernels/gather.h"

namespace qgraph::engine::kernels {
namespace {

// The positions of the taps of a pixel: at fixed distances, or given one by one.
struct Inside {
    const char* base;
    const int64_t* offsets;
    const char* operator[](int64_t tap) const { return base + offsets[tap]; }
};
struct Anywhere {
    const char* const* taps;
    const char* operator[](int64_t tap) const { return taps[tap]; }
};

template <bool whole>
inline Bytes load_tap(const char* from, const Block& block) {
    return whole ? load<Bytes>(from) : load_part(from, block.channels);
}

// Adds the taps from number `first` on, whose weights are four registers at `weights`.
template <bool whole, bool flips, Dot dot, typename Taps>
inline void add_taps(const Taps& taps, int64_t first, const Block& block, const char* weights,
                     Ints* sums) {
    constexpr int kStep = dot == dot_words ? 2 : 1;
    Bytes four[4] = {};
    for (int i = 0; i < 4; i += kStep) {
        four[i] = load_tap<whole>(taps[first + i / kStep], block);
        if (flips) four[i] ^= 0x80;
    }
    Ints together[4];
    dot == dot_words ? interleave_words(four, together) : interleave_bytes(four, together);
    for (int i = 0; i < 4; ++i) {
        const Ints weight = load<Ints>(weights + i * kRegister);
        sums[i] = dot(sums[i], together[i], weight);
    }
}

class Depthwise {
  public:
    Depthwise(const Layer& layer, const Block& block)
        : layer_(layer),
          block_(block),
          offsets_(reinterpret_cast<const int64_t*>(layer.at(layer.tap_table))),
          weights_(layer.at(layer.weights) + block.position * layer.taps) {
        const auto* start = numbers(layer, layer.finish.start, block);
        for (int i = 0; i < 4; ++i) start_[i] = load<Ints>(start + i * kWide);
    }

    // The sums of pixels [begin, end), at most kTileRows of them.
    void run(const char* x, int64_t begin, int64_t end, int32_t* sums, const char** taps) const {
        if (layer_.words) return by_flip<dot_words>(x, begin, end, sums, taps);
        if (block_.small) return by_flip<dot_small>(x, begin, end, sums, taps);
        by_flip<dot_bytes>(x, begin, end, sums, taps);
    }

  private:
    template <Dot dot>
    void by_flip(const char* x, int64_t begin, int64_t end, int32_t* sums,
                 const char** taps) const {
        const bool whole = block_.channels == kRegister;
        if (layer_.flip != 0) {
            return whole ? run<true, true, dot>(x, begin, end, sums, taps)
                         : run<false, true, dot>(x, begin, end, sums, taps);
        }
        return whole ? run<true, false, dot>(x, begin, end, sums, taps)
                     : run<false, false, dot>(x, begin, end, sums, taps);
    }

    template <bool whole, bool flips, Dot dot>
    void run(const char* x, int64_t begin, int64_t end, int32_t* sums, const char** taps) const {
        const Conv& s = layer_.conv;
        const int64_t bottom = (s.kernel_height - 1) * s.dilation_height;
        const int64_t right = (s.kernel_width - 1) * s.dilation_width;
        Window w = window_of(s, begin);
        for (int64_t pixel = begin; pixel < end; ++pixel, sums += 4 * kWide) {
            const char* base =
                x + ((w.image * s.height + w.top) * s.width + w.left) * s.channels + block_.channel;
            if (w.top >= 0 && w.left >= 0 && w.top + bottom < s.height &&
                w.left + right < s.width) {
                add_all<whole, flips, dot>(Inside{base, offsets_}, sums);
            } else {
                find(base, w, taps);
                add_all<whole, flips, dot>(Anywhere{taps}, sums);
            }
            w.left += s.stride_width;
            if (w.left + s.pad_left == s.out_width * s.stride_width) w = window_of(s, pixel + 1);
        }
    }

    void find(const char* base, const Window& w, const char** taps) const {
        const Conv& s = layer_.conv;
        int64_t tap = 0;
        for (int64_t ky = 0; ky < s.kernel_height; ++ky) {
            const int64_t iy = w.top + ky * s.dilation_height;
            for (int64_t kx = 0; kx < s.kernel_width; ++kx, ++tap) {
                const int64_t ix = w.left + kx * s.dilation_width;
                const bool there = iy >= 0 && iy < s.height && ix >= 0 && ix < s.width;
                taps[tap] = there ? base + offsets_[tap] : kZeros;
            }
        }
        for (; tap < layer_.taps; ++tap) taps[tap] = kZeros;
    }

    template <bool whole, bool flips, Dot dot, typename Taps>
    void add_all(const Taps& taps, int32_t* out) const {
        Ints sums[4] = {start_[0], start_[1], start_[2], start_[3]};
        for (int64_t i = 0; i < layer_.taps; i += 4) {
            add_taps<whole, flips, dot>(taps, dot == dot_words ? i / 2 : i, block_,
                                        weights_ + i * kRegister, sums);
        }
        for (int i = 0; i < 4; ++i) store(out + i * kWide, sums[i]);
    }

    const Layer& layer_;
    const Block& block_;
    const int64_t* offsets_;  // of each tap, from the window's corner
    const char* weights_;  // 4 registers with 4 bytes of each channel, then those of the next taps
    Ints start_[4];
};

void run_depthwise(const Layer& layer, const char* x, char* y, const Part& part, char* scratch) {
    const int64_t y_size = size_of(layer.conv.y);
    const int64_t y_row = layer.conv.out_channels * y_size;
    auto* sums = reinterpret_cast<int32_t*>(scratch);
    auto* taps = reinterpret_cast<const char**>(scratch + 2 * kTileRows * 4 * kWide * 4);
    for (int64_t i = part.first_block; i < part.last_block; ++i) {
        const Block& block = *layer.block(i);
        if (layer.columns) {
            run_columns(layer, block, x, y, part, sums);
            continue;
        }
        const Depthwise depthwise(layer, block);
        const FinishRows finish = finish_of(layer.finish, block);
        for (int64_t pixel = part.begin; pixel < part.end; pixel += kTileRows) {
            const int64_t end = std::min(pixel + kTileRows, part.end);
            depthwise.run(x, pixel, end, sums, taps);
            finish({layer, block, sums, static_cast<int>(end - pixel),
                    y + pixel * y_row + block.channel * y_size, y_row});
        }
    }
}

}  // namespace
}  // namespace qgraph::engine::kernels
