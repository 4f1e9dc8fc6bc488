// Maps, maxima over windows and tables. Each level includes this once.

#pragma once

#include "engine/kernels/codes.h"
#include "engine/kernels/finish_body.h"

namespace qgraph::engine::kernels {
namespace {

// Adds one row of a block of codes to sums. Signed bytes give sums that are 128 too large.
inline void add_bytes(const char* codes, const Block& block, Bytes flip, Ints* sums) {
    const bool whole = block.channels == kRegister;
    const Bytes bytes = whole ? load<Bytes>(codes) : load_part(codes, block.channels);
    const Bytes four[4] = {bytes ^ flip, Bytes{}, Bytes{}, Bytes{}};
    Ints wide[4];
    interleave(four, wide);
    for (int i = 0; i < 4; ++i) sums[i] = plus(sums[i], wide[i]);
}

inline void add_codes(Code type, const char* codes, const Block& block, Ints* sums) {
    if (size_of(type) == 1) {
        return add_bytes(codes, block, (Bytes)fill(type == Code::s8 ? 0x80808080 : 0), sums);
    }
    int32_t row[4 * kWide] = {};
    for (int64_t i = 0; i < block.channels; ++i) {
        row[i] = static_cast<int32_t>(load_code(type, codes, i));
    }
    for (int vector = 0; vector < 4; ++vector) {
        Ints more;
        for (int lane = 0; lane < kLanes; ++lane) {
            std::memcpy(reinterpret_cast<char*>(&more) + 16 * lane, row + 16 * lane + 4 * vector,
                        16);
        }
        sums[vector] = plus(sums[vector], more);
    }
}

// Rows of one block; rows of a, b and y have the same number of codes.
void map_rows(const Layer& layer, const Block& block, const char* a, const char* b, char* y,
              int64_t rows, int64_t row) {
    const Map& map = layer.map;
    const int32_t* start = numbers(layer, layer.finish.start, block);
    const FinishRows finish = finish_of(layer.finish, block);
    alignas(64) int32_t tile[kTileRows * 4 * kWide];
    for (int64_t first = 0; first < rows; first += kTileRows) {
        const int count = static_cast<int>(std::min<int64_t>(rows - first, kTileRows));
        for (int i = 0; i < count; ++i) {
            const int64_t at = (first + i) * row;
            Ints sums[4];
            for (int j = 0; j < 4; ++j) sums[j] = load<Ints>(start + j * kWide);
            add_codes(map.a, a + at * size_of(map.a), block, sums);
            if (map.two) add_codes(map.b, b + at * size_of(map.b), block, sums);
            for (int j = 0; j < 4; ++j) store(tile + (i * 4 + j) * kWide, sums[j]);
        }
        const int64_t y_row = row * size_of(map.y);
        finish({layer, block, tile, count, y + first * y_row, y_row});
    }
}

void run_map(const Layer& layer, const char* a, const char* b, char* y, int64_t rows) {
    const Map& map = layer.map;
    const auto from = [&](int64_t at, const Block& block, int64_t count, int64_t row) {
        map_rows(layer, block, a + at * size_of(map.a), map.two ? b + at * size_of(map.b) : nullptr,
                 y + at * size_of(map.y), count, row);
    };
    if (!layer.direct) {
        for (int64_t i = 0; i < layer.blocks; ++i) {
            from(layer.block(i)->channel, *layer.block(i), rows, map.channels);
        }
        return;
    }
    // All channels have the same stages, so rows can be regrouped to fill the sums of a block.
    Block block = *layer.block(0);
    const int64_t count = rows * map.channels;
    const int64_t whole = count / kRegister * kRegister;
    from(0, block, whole / kRegister, kRegister);
    block.channels = count - whole;
    if (block.channels > 0) from(whole, block, 1, kRegister);
}

// The part of an output pixel's window that is inside the image; it is never empty.
struct Inner {
    const char* corner;
    int64_t height, width;  // in pixels
};

Inner inner_of(const Pool& s, const char* x, int64_t pixel, int64_t size) {
    const int64_t left = pixel % s.out_width * s.stride_width - s.pad_left;
    const int64_t top = pixel / s.out_width % s.out_height * s.stride_height - s.pad_top;
    const int64_t image = pixel / (s.out_width * s.out_height) * s.height;
    const int64_t first_row = std::max<int64_t>(top, 0);
    const int64_t first_column = std::max<int64_t>(left, 0);
    return {x + ((image + first_row) * s.width + first_column) * s.channels * size,
            std::min(top + s.kernel_height, s.height) - first_row,
            std::min(left + s.kernel_width, s.width) - first_column};
}

// As many channels as T has elements, or one.
template <typename T>
inline void store_largest(const Inner& inner, int64_t pixel, int64_t line, int64_t at, char* y) {
    T most = load<T>(inner.corner + at);
    for (int64_t row = 0; row < inner.height; ++row) {
        const char* from = inner.corner + row * line + at;
        for (int64_t i = 0; i < inner.width; ++i, from += pixel) {
            most = larger(most, load<T>(from));
        }
    }
    store(y + at, most);
}

template <typename T, typename Register>
void pool_pixels(const Pool& s, const char* x, char* y, int64_t begin, int64_t end) {
    constexpr int64_t kSize = sizeof(T);
    const int64_t bytes = s.channels * kSize;
    const int64_t line = s.width * bytes;
    for (int64_t pixel = begin; pixel < end; ++pixel) {
        const Inner inner = inner_of(s, x, pixel, kSize);
        char* to = y + pixel * bytes;
        int64_t at = 0;
        for (; at + kRegister <= bytes; at += kRegister) {
            store_largest<Register>(inner, bytes, line, at, to);
        }
        for (; at < bytes; at += kSize) store_largest<T>(inner, bytes, line, at, to);
    }
}

void max_pool(const Pool& pool, const char* x, char* y, int64_t begin, int64_t end) {
    switch (pool.type) {
        case Code::u8:
            return pool_pixels<uint8_t, Bytes>(pool, x, y, begin, end);
        case Code::s8:
            return pool_pixels<int8_t, Chars>(pool, x, y, begin, end);
        case Code::u16:
            return pool_pixels<uint16_t, UShorts>(pool, x, y, begin, end);
        case Code::s16:
            return pool_pixels<int16_t, Shorts>(pool, x, y, begin, end);
        case Code::s32:
            return pool_pixels<int32_t, Ints>(pool, x, y, begin, end);
    }
}

}  // namespace
}  // namespace qgraph::engine::kernels
