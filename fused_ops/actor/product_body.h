// Products of rows and kernels, and the processing of their sums. Each level includes this once,
// after it has defined
//   integer_rows<S>(rows, vectors)   how many of `rows` it takes at a time, with 16 * vectors
//   channels multiply_integers<S>(tile, rows, vectors)
//   kCodesMinus                      what it subtracts from codes before it multiplies them
// and, optionally, Unpacked<S>.

#pragma once

#include <cstring>

#include "actor/elementwise_body.h"
#include "actor/format.h"
#include "actor/tile.h"

namespace qgraph::actor {
namespace {

// Sums of products in a fixed order: the first of four sums takes the values 0, 4, 8, ... of each
// segment, the second 1, 5, 9, ... and so on; then the four sums are added.
template <Type T, int M, int N>
void float_sums(const Tile& t, int64_t first, float* y) {
    Vec sums[4][M][N] = {};
    int64_t at = first;  // index of the weight
    const auto step = [&](int part, int64_t k, int64_t segment) {
        Vec w[N];
        for (int n = 0; n < N; ++n) w[n] = load<T, kWide>(t.weights, at + n * kWide);
        at += t.width;
        for (int m = 0; m < M; ++m) {
            const float x = reinterpret_cast<const float*>(t.rows[m] + segment * t.segment)[k];
            for (int n = 0; n < N; ++n) sums[part][m][n] += x * w[n];
        }
    };
    for (int64_t segment = 0; segment < t.segments; ++segment) {
        int64_t k = 0;
        for (; k + 4 <= t.steps; k += 4) {
            for (int part = 0; part < 4; ++part) step(part, k + part, segment);
        }
        for (int part = 0; k < t.steps; ++part, ++k) step(part, k, segment);
    }
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            const Vec low = sums[0][m][n] + sums[1][m][n], high = sums[2][m][n] + sums[3][m][n];
            store_all(y + m * kPanel + first + n * kWide, low + high);
        }
    }
}

constexpr int kFloatRows = kWide == 16 ? 4 : 2;  // with one vector of channels
constexpr int kFloatVectors = kWide == 16 ? 4 : 2;

template <Type T>
void multiply_floats(const Tile& t, int rows, float* y) {
    for (int64_t c = 0; c < t.width;) {
        if (rows == kFloatRows) {
            float_sums<T, kFloatRows, 1>(t, c, y);
            c += kWide;
        } else if (t.width - c >= kFloatVectors * kWide) {
            float_sums<T, 1, kFloatVectors>(t, c, y);
            c += kFloatVectors * kWide;
        } else {
            float_sums<T, 1, 1>(t, c, y);
            c += kWide;
        }
    }
}

// -- from sums to outputs -------------------------------------------------------------------------

struct Finish {
    const int32_t* integers;  // [rows, kPanel]
    const float* floats;      // or these
    const float* scale;       // of the panel
    const int32_t* sums;
    const float* bias;
    float alpha;
    int64_t channels;  // without padding
    int64_t outputs;
    float* y;
    const Range* ranges[kMaxTileRows];
};

template <Activation A, bool integers>
void finish(const Finish& f, int rows) {
    const int64_t channels = f.channels, outputs = f.outputs;
    const float alpha = f.alpha;
    float deltas[kMaxTileRows];
    int32_t zeros[kMaxTileRows];
    for (int row = 0; integers && row < rows; ++row) {
        deltas[row] = f.ranges[row]->delta;
        zeros[row] = f.ranges[row]->zero - kCodesMinus;
    }
    // Vectors are padded to 16 floats.
    for (int64_t c = 0; c < channels; c += kWide) {
        const Vec bias = load_all(f.bias + c), scale = integers ? load_all(f.scale + c) : bias;
        const Bits sums = integers ? (Bits)load_ints(f.sums + c) : Bits{};
        const int32_t* found = f.integers + c;
        const float* floats = f.floats + c;
        float* y = f.y + c;
        const auto value = [&](int row) {
            if constexpr (!integers) return load_all(floats + row * kPanel) + bias;
            const Bits sum = (Bits)load_ints(found + row * kPanel) - sums * (Bits{} + zeros[row]);
            return __builtin_convertvector((Ints)sum, Vec) * (deltas[row] * scale) + bias;
        };
        if (channels - c >= kWide) {
            for (int row = 0; row < rows; ++row, y += outputs) {
                store_all(y, activated<A>(value(row), alpha));
            }
        } else {
            for (int row = 0; row < rows; ++row, y += outputs) {
                store_first(y, activated<A>(value(row), alpha), channels - c);
            }
        }
    }
}

template <bool integers>
void run_finish(const Finish& f, Activation activation, int rows) {
    with_activation(activation, [&](auto tag) { finish<decltype(tag)::value, integers>(f, rows); });
}

// -- tiles ----------------------------------------------------------------------------------------

template <Storage S>
constexpr bool kIntegers = S == Storage::int8 || S == Storage::int4;

template <Storage S>
int rows_at_once(int64_t rows, int vectors, bool unpacked) {
    if constexpr (Unpacked<S>::kPays) {
        if (unpacked) return Unpacked<S>::rows(rows, vectors);
    }
    if constexpr (kIntegers<S>) return integer_rows<S>(rows, vectors);
    return rows >= kFloatRows ? kFloatRows : 1;
}

// `scratch` is null if weights are read from the block itself.
template <Storage S>
void multiply_panel(const Tile& tile, int rows, int vectors, char* scratch, float* floats) {
    if constexpr (Unpacked<S>::kPays) {
        if (scratch != nullptr) return Unpacked<S>::multiply(tile, rows, vectors, scratch);
    }
    if constexpr (kIntegers<S>) {
        multiply_integers<S>(tile, rows, vectors);
    } else {
        constexpr Type type = S == Storage::float32 ? Type::float32 : Type::float16;
        multiply_floats<type>(tile, rows, floats);
    }
}

template <Storage S>
void product_of(const Product& p) {
    constexpr bool integers = kIntegers<S>;
    constexpr int64_t group = S == Storage::int8 ? 4 : S == Storage::int4 ? 8 : 1;
    const int64_t of_one = bytes_of(S, p.kernel.segments, p.kernel.length);
    const int64_t rows = p.samples * p.pixel_count;
    // Slow activations are computed for all rows at once if a row does not fill vectors.
    const bool afterwards = rows > 1 && p.kernel.outputs % kLanes != 0;
    alignas(64) int32_t sums[kMaxTileRows * kPanel];
    alignas(64) float floats[kMaxTileRows * kPanel];
    Tile tile;
    tile.segment = p.segment;
    tile.segments = p.kernel.segments;
    char* scratch = nullptr;
    if constexpr (Unpacked<S>::kPays) scratch = p.unpacked;
    tile.sums = sums;
    Finish f;
    f.integers = sums;
    f.floats = floats;
    f.alpha = p.alpha;
    f.outputs = p.kernel.outputs;
    for (int64_t panel = 0; panel < p.kernel.outputs; panel += kPanel) {
        const int64_t left = p.kernel.outputs - panel;
        f.channels = left < kPanel ? left : kPanel;
        f.scale = integers ? p.kernel.scale + panel : nullptr;
        f.sums = integers ? p.kernel.sums + panel : nullptr;
        f.bias = p.bias + panel;
        tile.weights = p.kernel.data + panel * of_one;
        tile.width = padded(f.channels);
        tile.steps = rows_of(S, p.kernel.length) / group;
        if constexpr (Unpacked<S>::kPays) {
            if (scratch != nullptr) Unpacked<S>::unpack(tile, scratch);
        }
        const int vectors = static_cast<int>(tile.width / 16);
        int64_t sample = 0, pixel = 0;
        for (int64_t row = 0; row < rows;) {
            const int count = rows_at_once<S>(rows - row, vectors, scratch != nullptr);
            for (int i = 0; i < count; ++i) {
                tile.rows[i] = p.x + sample * p.sample + p.pixels[pixel];
                f.ranges[i] = integers ? p.ranges + sample : nullptr;
                if (++pixel == p.pixel_count) pixel = 0, ++sample;
            }
            multiply_panel<S>(tile, count, vectors, scratch, floats);
            f.y = p.y + row * p.kernel.outputs + panel;
            run_finish<integers>(f, afterwards ? Activation::linear : p.activation, count);
            row += count;
        }
    }
    if (afterwards) activate({p.y, p.y, 1, rows * p.kernel.outputs}, p.activation, p.alpha);
}

void product(const Product& p) {
    switch (p.kernel.storage) {
        case Storage::float32:
            return product_of<Storage::float32>(p);
        case Storage::float16:
            return product_of<Storage::float16>(p);
        case Storage::int8:
            return product_of<Storage::int8>(p);
        case Storage::int4:
            return product_of<Storage::int4>(p);
    }
}

template <Storage S>
int64_t unpacked_of(int64_t values, int64_t rows) {
    if constexpr (Unpacked<S>::kPays) {
        if (Unpacked<S>::pays(values, rows)) return Unpacked<S>::bytes(values);
    }
    return 0;
}

int64_t unpacked(Storage storage, int64_t values, int64_t rows) {
    return storage == Storage::int8   ? unpacked_of<Storage::int8>(values, rows)
           : storage == Storage::int4 ? unpacked_of<Storage::int4>(values, rows)
                                      : 0;
}

}  // namespace
}  // namespace qgraph::actor
