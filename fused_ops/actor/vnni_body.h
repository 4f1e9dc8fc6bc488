// Products with AVX-512 VNNI, for levels that have it.

#pragma once

#include <cstring>

#include "actor/format.h"
#include "actor/tile.h"
#include "actor/vectors.h"

namespace qgraph::actor {
namespace {

constexpr int kCodesMinus = 0;  // products are those of unsigned codes

// The number of rows whose sums fit into registers beside weights and codes.
constexpr int kMost[] = {0, 16, 12, 8, 6};  // the index is the number of vectors of 16 channels

// With few rows, weights come from memory, not from the cache: how many bytes ahead to prefetch.
constexpr int64_t kAhead = 1024;

template <Storage S>
int integer_rows(int64_t rows, int vectors) {
    const int most = kMost[vectors];
    return static_cast<int>(rows >= most ? most : rows < 5 ? rows : 5);
}

typedef uint16_t Words __attribute__((vector_size(64)));

inline __m512i four_codes(const char* from) {
    int32_t four;
    __builtin_memcpy(&four, from, 4);
    return _mm512_set1_epi32(four);
}

// M rows by N times 16 channels, with U sums of each, which hide each other's latency.
template <Storage S, int M, int N, int U>
void multiply_tile(const Tile& t) {
    constexpr int group = S == Storage::int8 ? 4 : 8;
    __m512i sums[U][M][N];
    for (int u = 0; u < U; ++u) {
        for (int m = 0; m < M; ++m) {
            for (int n = 0; n < N; ++n) sums[u][m][n] = _mm512_setzero_si512();
        }
    }
    const char* w = t.weights;
    for (int64_t segment = 0; segment < t.segments; ++segment) {
        const char* x[M];
        for (int m = 0; m < M; ++m) x[m] = t.rows[m] + segment * t.segment;
        const auto step = [&](int u, int64_t at) __attribute__((always_inline)) {
            __m512i first[N], second[N];
            for (int n = 0; n < N; ++n) {
                first[n] = _mm512_loadu_si512(w + 64 * n);
                if constexpr (S == Storage::int4) {
                    // Signed 4-bit integers in the high half of each byte, so 16 times as large.
                    const __m512i high = _mm512_set1_epi8(-16);
                    second[n] = _mm512_and_si512(first[n], high);
                    first[n] = _mm512_and_si512((__m512i)((Words)first[n] << 4), high);
                }
            }
            for (int m = 0; m < M; ++m) {
                const __m512i codes = four_codes(x[m] + at * group);
                for (int n = 0; n < N; ++n) {
                    sums[u][m][n] = _mm512_dpbusd_epi32(sums[u][m][n], codes, first[n]);
                }
                if constexpr (S == Storage::int4) {
                    const __m512i more = four_codes(x[m] + at * group + 4);
                    for (int n = 0; n < N; ++n) {
                        sums[u][m][n] = _mm512_dpbusd_epi32(sums[u][m][n], more, second[n]);
                    }
                }
            }
            if constexpr (M <= 8) {
                for (int n = 0; n < N; ++n) _mm_prefetch(w + kAhead + 64 * n, _MM_HINT_T0);
            }
            w += 64 * N;
        };
        int64_t at = 0;
        for (; at + U <= t.steps; at += U) {
            for (int u = 0; u < U; ++u) step(u, at + u);
        }
        for (; at < t.steps; ++at) step(0, at);
    }
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            __m512i sum = sums[0][m][n];
            for (int u = 1; u < U; ++u) sum = _mm512_add_epi32(sum, sums[u][m][n]);
            if (S == Storage::int4) sum = (__m512i)((Ints)sum >> 4);
            _mm512_storeu_si512(t.sums + m * kPanel + 16 * n, sum);
        }
    }
}

template <Storage S, int N>
void multiply_rows(const Tile& t, int rows) {
    if (rows == kMost[N]) return multiply_tile<S, kMost[N], N, 1>(t);
    switch (rows) {
        case 1:
            return multiply_tile<S, 1, N, N <= 2 ? 4 : 2>(t);
        case 2:
            return multiply_tile<S, 2, N, N == 1 ? 4 : 2>(t);
        case 3:
            return multiply_tile<S, 3, N, N <= 2 ? 2 : 1>(t);
        case 4:
            return multiply_tile<S, 4, N, N == 1 ? 2 : 1>(t);
        default:
            return multiply_tile<S, 5, N, 1>(t);
    }
}

template <Storage S>
void multiply_integers(const Tile& t, int rows, int vectors) {
    switch (vectors) {
        case 1:
            return multiply_rows<S, 1>(t, rows);
        case 2:
            return multiply_rows<S, 2>(t, rows);
        case 3:
            return multiply_rows<S, 3>(t, rows);
        default:
            return multiply_rows<S, 4>(t, rows);
    }
}

// Widens 4 bits to 8.
void unpack_int4(Tile& tile, char* scratch) {
    const int64_t line = 4 * tile.width, lines = tile.segments * tile.steps;
    const char* from = tile.weights;
    tile.weights = scratch;
    tile.steps *= 2;
    const __m512i low = _mm512_set1_epi8(15);
    // The bytes 0 to 7 and -8 to -1.
    const __m512i values = _mm512_set4_epi32(-0x00010204, -0x04050608, 0x07060504, 0x03020100);
    for (int64_t i = 0; i < lines; ++i, from += line, scratch += 2 * line) {
        for (int64_t at = 0; at < line; at += 64) {
            const __m512i both = _mm512_loadu_si512(from + at);
            const __m512i first = _mm512_and_si512(both, low);
            const __m512i second = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
            _mm512_storeu_si512(scratch + at, _mm512_shuffle_epi8(values, first));
            _mm512_storeu_si512(scratch + line + at, _mm512_shuffle_epi8(values, second));
        }
    }
}

}  // namespace
}  // namespace qgraph::actor
