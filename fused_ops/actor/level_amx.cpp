#include "actor/kernels.h"

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)

#include <immintrin.h>

#include "actor/vnni_body.h"

namespace qgraph::actor {
namespace {

constexpr int kTileRows = 16;  // of a tile, each of 64 bytes
constexpr int64_t kTileBytes = 64;
constexpr int64_t kLast = kTileRows * 4 * kPanel;  // bytes of weights that fill whole tiles

// Tiles 0 to 3 hold sums: 16 rows by 16 channels, then the next 16 channels, then the next 16 rows.
// Tiles 4 and 5 hold codes of these rows, tiles 6 and 7 hold weights.
struct alignas(64) Shapes {
    uint8_t palette = 1;
    uint8_t start = 0;
    uint8_t reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};

    explicit Shapes(int count) {
        const int first = count < kTileRows ? count : kTileRows;
        for (const int tile : {0, 1, 4}) set(tile, first);
        for (const int tile : {2, 3, 5}) set(tile, count - first);
        for (const int tile : {6, 7}) set(tile, kTileRows);
    }
    void set(int tile, int count) {
        rows[tile] = static_cast<uint8_t>(count);
        bytes[tile] = count > 0 ? kTileBytes : 0;
    }
};

// Operands of the multiplication, 16 groups of four values at a time.
struct Operands {
    const char* codes;  // the first row
    int64_t row;        // bytes to the next row
    const char* weights;
    const char* last;  // the weights that do not fill a whole tile
    int64_t line;      // bytes from one group to the next
    int64_t tiles, whole;
};

// Multiplies up to 16 or 32 rows by 16 or 32 channels.
template <bool more_rows, bool more_channels>
void multiply_tiles(const Operands& o, int64_t channel, int32_t* sums) {
    _tile_zero(0);
    if constexpr (more_channels) _tile_zero(1);
    if constexpr (more_rows) _tile_zero(2);
    if constexpr (more_rows && more_channels) _tile_zero(3);
    for (int64_t tile = 0; tile < o.tiles; ++tile) {
        const char* codes = o.codes + tile * kTileBytes;
        const char* weights =
            (tile < o.whole ? o.weights + tile * kTileRows * o.line : o.last) + 4 * channel;
        _tile_loadd(6, weights, o.line);
        if constexpr (more_channels) _tile_loadd(7, weights + kTileBytes, o.line);
        _tile_loadd(4, codes, o.row);
        _tile_dpbusd(0, 4, 6);
        if constexpr (more_channels) _tile_dpbusd(1, 4, 7);
        if constexpr (more_rows) {
            _tile_loadd(5, codes + kTileRows * o.row, o.row);
            _tile_dpbusd(2, 5, 6);
            if constexpr (more_channels) _tile_dpbusd(3, 5, 7);
        }
    }
    constexpr int64_t stride = 4 * kPanel;
    int32_t* below = sums + kTileRows * kPanel;
    _tile_stored(0, sums + channel, stride);
    if constexpr (more_channels) _tile_stored(1, sums + channel + 16, stride);
    if constexpr (more_rows) _tile_stored(2, below + channel, stride);
    if constexpr (more_rows && more_channels) _tile_stored(3, below + channel + 16, stride);
}

template <bool more_rows>
void multiply_channels(const Operands& o, int64_t width, int32_t* sums) {
    int64_t channel = 0;
    for (; channel + 32 <= width; channel += 32) multiply_tiles<more_rows, true>(o, channel, sums);
    if (channel < width) multiply_tiles<more_rows, false>(o, channel, sums);
}

// The compiler does not know that tiles are loaded from memory.
inline void memory_is_written() { __asm__ volatile("" ::: "memory"); }

// Bytes between rows; 0 if their distances differ or rows have several segments.
int64_t distance(const Tile& t, int rows) {
    if (t.segments > 1) return 0;
    if (rows == 1) return kTileBytes;
    const int64_t found = t.rows[1] - t.rows[0];
    for (int i = 2; i < rows; ++i) {
        if (t.rows[i] - t.rows[i - 1] != found) return 0;
    }
    return found;
}

// Parts of the given memory: weights padded to whole tiles, unpacked weights, and codes of rows
// whose distances differ.
template <Storage S>
struct Tiled {
    static constexpr bool kPays = true;

    static bool pays(int64_t values, int64_t rows) {
        return values >= 128 && rows >= (S == Storage::int8 ? 8 : 16);
    }

    static int64_t bytes(int64_t values) {
        const int64_t row = (values + kTileBytes - 1) / kTileBytes * kTileBytes;
        return kLast + unpacked(values) + kMaxTileRows * row + kTileBytes;
    }

    static void unpack(Tile& tile, char* scratch) {
        if constexpr (S == Storage::int4) unpack_int4(tile, scratch + kLast);
        const int64_t line = 4 * tile.width, lines = tile.segments * tile.steps;
        const int64_t whole = lines / kTileRows * kTileRows, left = (lines - whole) * line;
        if (left == 0) return;
        std::memcpy(scratch, tile.weights + whole * line, static_cast<size_t>(left));
        std::memset(scratch + left, 0, static_cast<size_t>(kTileRows * line - left));
    }

    static int rows(int64_t rows, int) {
        return static_cast<int>(rows < kMaxTileRows ? rows : kMaxTileRows);
    }

    static void multiply(const Tile& tile, int rows, int, char* scratch) {
        const int64_t lines = tile.segments * tile.steps;
        Operands o;
        o.weights = tile.weights;
        o.last = scratch;
        o.line = 4 * tile.width;
        o.whole = lines / kTileRows;
        o.tiles = (lines + kTileRows - 1) / kTileRows;
        o.codes = tile.rows[0];
        o.row = distance(tile, rows);
        if (o.row == 0) {
            char* codes = scratch + kLast + unpacked(4 * lines);
            o.codes = codes;
            o.row = o.tiles * kTileBytes;
            const auto copy = 4 * tile.steps <= 32 ? &gather<32> : &gather<64>;
            for (int i = 0; i < rows; ++i) copy(tile, tile.rows[i], codes + i * o.row);
        }
        memory_is_written();
        const Shapes shapes(rows);
        _tile_loadconfig(&shapes);
        if (rows > kTileRows) {
            multiply_channels<true>(o, tile.width, tile.sums);
        } else {
            multiply_channels<false>(o, tile.width, tile.sums);
        }
        _tile_release();
        memory_is_written();
    }

  private:
    static int64_t unpacked(int64_t values) { return S == Storage::int4 ? kPanel * values : 0; }

    // Copies whole vectors: bytes after the end are overwritten by the next segment or row.
    template <int size>
    static void gather(const Tile& tile, const char* x, char* to) {
        for (int64_t segment = 0; segment < tile.segments; ++segment) {
            for (int64_t at = 0; at < 4 * tile.steps; at += size) {
                std::memcpy(to + at, x + at, size);
            }
            x += tile.segment;
            to += 4 * tile.steps;
        }
    }
};

template <>
struct Unpacked<Storage::int8> : Tiled<Storage::int8> {};
template <>
struct Unpacked<Storage::int4> : Tiled<Storage::int4> {};

}  // namespace
}  // namespace qgraph::actor

#include "actor/level_body.h"
#endif

namespace qgraph::actor {

const Kernels* amx_kernels() {
#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)
    return &kKernels;
#else
    return nullptr;
#endif
}

}  // namespace qgraph::actor
