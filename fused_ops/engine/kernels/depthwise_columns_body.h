// Depthwise 3x3 convolutions of bytes. The codes of a column, one from each line, are interleaved.
// A column is used for all windows that contain it, and for two lines of the output if these are
// neighbours. Each level includes this once, after it has defined interleave_bytes,
// moved_down, dot_bytes and dot_small.

#pragma once

#include "engine/kernels/finish_body.h"
#include "engine/kernels/operands.h"

namespace qgraph::engine::kernels {
namespace {

alignas(64) const char kZeros[4 * kRegister] = {};

// Four lines of x; some may be outside of the image.
template <bool whole, bool flips>
class Lines {
  public:
    Lines(const Conv& s, const Block& block, const char* image, int64_t top, int count)
        : width_(s.width), channels_(block.channels) {
        for (int i = 0; i < 4; ++i) {
            const int64_t iy = top + i;
            const bool inside = i < count && iy >= 0 && iy < s.height;
            line_[i] = inside ? image + iy * s.width * s.channels + block.channel : kZeros;
            step_[i] = inside ? s.channels : 0;
        }
    }

    void column(int64_t ix, Ints* out) const {
        if (ix < 0 || ix >= width_) {
            std::fill_n(out, 4, (Ints)(Bytes{} + static_cast<uint8_t>(flips ? 0x80 : 0)));
            return;
        }
        Bytes four[4];
        for (int i = 0; i < 4; ++i) {
            const char* from = line_[i] + ix * step_[i];
            four[i] = whole ? load<Bytes>(from) : load_part(from, channels_);
            if (flips) four[i] ^= 0x80;
        }
        interleave_bytes(four, out);
    }

  private:
    const char* line_[4];
    int64_t step_[4];
    int64_t width_;
    int64_t channels_;
};

// Sums of `count` pixels of a line of the output; the window of the first begins at `left`. For a
// pair of lines, the sums of the line below follow kTileRows rows later.
template <bool whole, bool flips, int stride, bool pair, Dot dot>
void add_columns(const Layer& layer, const Block& block, const Lines<whole, flips>& lines,
                 int64_t left, int64_t count, int32_t* sums) {
    const char* packed = layer.at(layer.weights) + block.position * layer.taps;
    const int32_t* from = numbers(layer, layer.finish.start, block);
    Ints weights[12], below[12], start[4], columns[3][4];
    for (int i = 0; i < 12; ++i) {
        weights[i] = load<Ints>(packed + i * kRegister);
        below[i] = moved_down(weights[i]);
    }
    for (int i = 0; i < 4; ++i) start[i] = load<Ints>(from + i * kWide);
    lines.column(left, columns[3 - stride]);
    if (stride == 1) {
        std::copy_n(columns[2], 4, columns[1]);
        lines.column(left + 1, columns[2]);
    } else {
        std::copy_n(columns[1], 4, columns[2]);
    }
    for (int64_t pixel = 0; pixel < count; ++pixel, left += stride, sums += 4 * kWide) {
        // The columns of the previous pixel, shifted by one.
        for (int i = 0; i < 4; ++i) {
            columns[0][i] = columns[stride][i];
            if (stride == 1) columns[1][i] = columns[2][i];
        }
        if (stride == 2) lines.column(left + 1, columns[1]);
        lines.column(left + 2, columns[2]);
        for (int i = 0; i < 4; ++i) {
            Ints above = start[i];
            Ints under = start[i];
            for (int x = 0; x < 3; ++x) {
                above = dot(above, columns[x][i], weights[x * 4 + i]);
                if (pair) under = dot(under, columns[x][i], below[x * 4 + i]);
            }
            store(sums + i * kWide, above);
            if (pair) store(sums + kTileRows * 4 * kWide + i * kWide, under);
        }
    }
}

using AddColumns = void (*)(const Layer&, const Block&, const char* image, int64_t top,
                            int64_t left, int64_t count, bool pair, int32_t* sums);

template <bool whole, bool flips, Dot dot>
void add_lines(const Layer& layer, const Block& block, const char* image, int64_t top, int64_t left,
               int64_t count, bool pair, int32_t* sums) {
    const Lines<whole, flips> lines(layer.conv, block, image, top, pair ? 4 : 3);
    if (layer.conv.stride_width == 2) {
        add_columns<whole, flips, 2, false, dot>(layer, block, lines, left, count, sums);
    } else if (pair) {
        add_columns<whole, flips, 1, true, dot>(layer, block, lines, left, count, sums);
    } else {
        add_columns<whole, flips, 1, false, dot>(layer, block, lines, left, count, sums);
    }
}

template <Dot dot>
AddColumns add_lines_of(const Layer& layer, const Block& block) {
    const bool whole = block.channels == kRegister;
    if (layer.flip != 0) return whole ? &add_lines<true, true, dot> : &add_lines<false, true, dot>;
    return whole ? &add_lines<true, false, dot> : &add_lines<false, false, dot>;
}

void run_columns(const Layer& layer, const Block& block, const char* x, char* y, const Part& part,
                 int32_t* sums) {
    const Conv& s = layer.conv;
    const int64_t size = size_of(s.y);
    const int64_t y_row = s.out_channels * size;
    const FinishRows finish = finish_of(layer.finish, block);
    const AddColumns add =
        block.small ? add_lines_of<dot_small>(layer, block) : add_lines_of<dot_bytes>(layer, block);
    int64_t taken = 0;
    for (int64_t pixel = part.begin; pixel < part.end; pixel += taken) {
        const int64_t column = pixel % s.out_width;
        const int64_t row = pixel / s.out_width;
        const int64_t length = std::min(s.out_width - column, part.end - pixel);
        const bool pair = s.stride_height == 1 && s.stride_width == 1 && length == s.out_width &&
                          part.end - pixel >= 2 * length && (row + 1) % s.out_height != 0;
        const char* image = x + row / s.out_height * s.height * s.width * s.channels;
        for (int64_t first = 0; first < length; first += kTileRows) {
            const int64_t count = std::min<int64_t>(length - first, kTileRows);
            add(layer, block, image, row % s.out_height * s.stride_height - s.pad_top,
                (column + first) * s.stride_width - s.pad_left, count, pair, sums);
            char* to = y + (pixel + first) * y_row + block.channel * size;
            finish({layer, block, sums, static_cast<int>(count), to, y_row});
            if (pair) {
                finish({layer, block, sums + kTileRows * 4 * kWide, static_cast<int>(count),
                        to + length * y_row, y_row});
            }
        }
        taken = pair ? 2 * length : length;
    }
}

}  // namespace
}  // namespace qgraph::engine::kernels
