// Emulates AMX tiles of bytes for level_amx.cpp.
#pragma once

#include <cstdint>
#include <cstring>

namespace emulated {

struct Tile {
    int rows, bytes;
    char data[16][64];
};
inline thread_local Tile tiles[8];

inline void tile_configure(const void* from) {
    const auto* said = static_cast<const unsigned char*>(from);
    for (int i = 0; i < 8; ++i) {
        std::memset(&tiles[i], 0, sizeof(Tile));
        tiles[i].bytes = said[16 + 2 * i] + 256 * said[17 + 2 * i];
        tiles[i].rows = said[48 + i];
    }
}

inline void tile_load(int tile, const void* from, int64_t stride) {
    Tile& t = tiles[tile];
    for (int i = 0; i < t.rows; ++i) {
        std::memcpy(t.data[i], static_cast<const char*>(from) + i * stride, t.bytes);
    }
}

inline void tile_store(int tile, void* to, int64_t stride) {
    const Tile& t = tiles[tile];
    for (int i = 0; i < t.rows; ++i) {
        std::memcpy(static_cast<char*>(to) + i * stride, t.data[i], t.bytes);
    }
}

// Adds products of four unsigned and four signed bytes.
inline void tile_multiply(int sums, int unsigned_bytes, int signed_bytes) {
    Tile& s = tiles[sums];
    const Tile &a = tiles[unsigned_bytes], &b = tiles[signed_bytes];
    for (int m = 0; m < s.rows; ++m) {
        for (int n = 0; n < s.bytes / 4; ++n) {
            int32_t sum;
            std::memcpy(&sum, s.data[m] + 4 * n, 4);
            for (int k = 0; k < a.bytes; ++k) {
                const int code = static_cast<unsigned char>(a.data[m][k]);
                sum += code * static_cast<signed char>(b.data[k / 4][4 * n + k % 4]);
            }
            std::memcpy(s.data[m] + 4 * n, &sum, 4);
        }
    }
}

}  // namespace emulated

#define __AMX_INT8__ 1
#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbusd
#undef _tile_release
#define _tile_loadconfig(from) emulated::tile_configure(from)
#define _tile_loadd(tile, from, stride) emulated::tile_load(tile, from, stride)
#define _tile_stored(tile, to, stride) emulated::tile_store(tile, to, stride)
#define _tile_zero(tile) std::memset(emulated::tiles[tile].data, 0, sizeof emulated::Tile::data)
#define _tile_dpbusd(sums, a, b) emulated::tile_multiply(sums, a, b)
#define _tile_release() static_cast<void>(0)
