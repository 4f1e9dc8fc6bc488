// The kernels of float convolutions, written with the vectors of one instruction set.
#pragma once

#include <math.h>

#include "core/conv_tile.h"
#include "core/unrolled.h"
#include "core/vectors.h"

namespace qgraph {
namespace {

typedef Floats<kWidth> ConvValue;

// As many sums as fit into registers, with a few registers left for operands.
#if defined(__AVX512F__)
constexpr int kTileRows = 14;
constexpr int kPanelVectors = 2;
#elif defined(__AVX2__)
constexpr int kTileRows = 6;
constexpr int kPanelVectors = 2;
#else
constexpr int kTileRows = 4;
constexpr int kPanelVectors = 2;
#endif

static_assert(kTileRows <= kMostTileRows && kPanelVectors * kWidth <= kMostPanelColumns);

// One number in all lanes.
inline ConvValue spread(float number) {
#if defined(__AVX512F__)
    return _mm512_set1_ps(number);
#elif defined(__AVX2__)
    return _mm256_set1_ps(number);
#else
    ConvValue value;
    for (int i = 0; i < kWidth; ++i) value[i] = number;
    return value;
#endif
}

// a * b + c, rounded once.
inline ConvValue fused(ConvValue a, ConvValue b, ConvValue c) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
    return (ConvValue)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    for (int i = 0; i < kWidth; ++i) c[i] = fmaf(a[i], b[i], c[i]);
    return c;
#endif
}

inline void add_row(float* out, const ConvValue* sums, int64_t columns, bool first) {
    float found[kPanelVectors * kWidth];
    __builtin_memcpy(found, sums, sizeof(ConvValue) * ((columns + kWidth - 1) / kWidth));
    for (int64_t i = 0; i < columns; ++i) out[i] = first ? found[i] : out[i] + found[i];
}

template <int Rows, int Count>
inline void multiply(const ConvTile& tile) {
    ConvValue sums[Rows][Count] = {};
    const float* patches = tile.patches;
    const float* panel = tile.panel;
    for (int64_t k = 0; k < tile.depth; ++k) {
        ConvValue filters[Count];
        unrolled<Count>([&](auto v) {
            filters[v] = load<Type::float32, kWidth>(panel, k * Count * kWidth + v * kWidth);
        });
        unrolled<Rows>([&](auto row) {
            const ConvValue x = spread(patches[row * kPatchStride + k]);
            unrolled<Count>([&](auto v) { sums[row][v] = fused(x, filters[v], sums[row][v]); });
        });
    }
    const bool whole = tile.columns == Count * kWidth;
    unrolled<Rows>([&](auto row) {
        if (row >= tile.rows) return;
        float* out = tile.out + row * tile.stride;
        if (!whole) return add_row(out, sums[row], tile.columns, tile.first);
        unrolled<Count>([&](auto v) {
            ConvValue sum = sums[row][v];
            if (!tile.first) sum = load<Type::float32, kWidth>(out, v * kWidth) + sum;
            store<Type::float32, kWidth, false>(out, v * kWidth, sum);
        });
    });
}

template <int Count>
void multiply_rows(ConvTile tile) {
    const IeeeArithmetic ieee;
    for (; tile.rows > (kTileRows + 1) / 2; tile.rows -= kTileRows) {
        multiply<kTileRows, Count>(tile);
        tile.patches += kTileRows * kPatchStride;
        tile.out += kTileRows * tile.stride;
    }
    if (tile.rows > 0) multiply<(kTileRows + 1) / 2, Count>(tile);
}

constexpr ConvKernels kConvKernels{kTileRows, kPanelVectors * kWidth, multiply_rows<kPanelVectors>,
                                   multiply_rows<kPanelVectors / 2>};

}  // namespace
}  // namespace qgraph
