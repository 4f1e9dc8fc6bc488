#include "engine/kernels/layer.h"

#if defined(__aarch64__) && defined(__ARM_NEON)

namespace qgraph::engine::kernels {
namespace {
constexpr int kLanes = 1;
constexpr int kRows = 6;
constexpr Products kProducts{kSignedHalves, true, true, true};
}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/neon_body.h"

namespace qgraph::engine::kernels {
namespace {

inline void interleave_bytes(const Bytes* four, Ints* out) { interleave_split(four, out); }

// The weights of three taps and one of padding, moved by one tap: those of the line below.
inline Ints moved_down(Ints weights) {
    const auto w = (uint16x8_t)weights;
    const uint16x8_t before = vextq_u16(vdupq_n_u16(0), w, 4);  // the first half in the second
    return (Ints)vorrq_u16(vshlq_n_u16(w, 8), vshrq_n_u16(before, 8));
}

// Each word sums two products of a channel: those of the first and of the second half.
inline int16x8_t multiply_pairs(Ints codes, Ints weights) {
    const auto c = (int8x16_t)codes, w = (int8x16_t)weights;
    return vmlal_high_s8(vmull_s8(vget_low_s8(c), vget_low_s8(w)), c, w);
}
inline int16x8_t add_products(int16x8_t words, Ints codes, Ints weights) {
    const auto c = (int8x16_t)codes, w = (int8x16_t)weights;
    return vmlal_high_s8(vmlal_s8(words, vget_low_s8(c), vget_low_s8(w)), c, w);
}
inline Ints add_pairs(Ints sums, int16x8_t words) {
    return (Ints)vpadalq_s16((int32x4_t)sums, words);
}

// For layers where words hold the sums of pairs.
inline Ints dot_small(Ints sums, Ints codes, Ints weights) {
    return add_pairs(sums, multiply_pairs(codes, weights));
}

inline Ints dot_bytes(Ints sums, Ints codes, Ints weights) {
    const auto c = (int8x16_t)codes, w = (int8x16_t)weights;
    sums = add_pairs(sums, vmull_s8(vget_low_s8(c), vget_low_s8(w)));
    return add_pairs(sums, vmull_high_s8(c, w));
}

// A step's codes of a row for all channels, from the row's codes of four steps: the first two codes
// fill the first half, the last two the second half.
alignas(16) constexpr uint8_t kSpread[4][16] = {
    {0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3},
    {4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7},
    {8, 9, 8, 9, 8, 9, 8, 9, 10, 11, 10, 11, 10, 11, 10, 11},
    {12, 13, 12, 13, 12, 13, 12, 13, 14, 15, 14, 15, 14, 15, 14, 15}};

inline Ints spread(Ints row, uint8x16_t places) {
    return (Ints)vqtbl1q_u8((uint8x16_t)row, places);
}

// Sums of M rows and N registers of channels, with extra steps (extra_steps.h).
template <int M, int N>
struct Tile {
    Ints sums[M][N];
    uint8x16_t places[4];

    explicit Tile(const Operands& o) {
        unrolled<M * N>([&](auto i) { sums[i / N][i % N] = load<Ints>(o.start + i % N * kWide); });
        for (int i = 0; i < 4; ++i) places[i] = vld1q_u8(kSpread[i]);
    }

    void store_sums(const Operands& o) const {
        int32_t* to = o.sums;
        const int64_t sums_row = o.sums_row;
        unrolled<M>([&](auto m) {
            unrolled<N>([&](auto n) { store(to + n * kWide, sums[m][n]); });
            to += sums_row;
        });
    }

    // `chunk` steps, the first of which is number `first` of the four whose codes are given.
    template <int chunk, int first>
    void add(const Ints* codes, const int8_t* w) {
        Ints weights[chunk][N];
        unrolled<chunk * N>(
            [&](auto i) { weights[i / N][i % N] = load<Ints>(w + i * int64_t{kRegister}); });
        unrolled<M>([&](auto m) {
            Ints four[chunk];
            unrolled<chunk>([&](auto i) { four[i] = spread(codes[m], places[first + i]); });
            unrolled<N>([&](auto n) {
                int16x8_t words = multiply_pairs(four[0], weights[0][n]);
                if constexpr (chunk == 2) words = add_products(words, four[1], weights[1][n]);
                sums[m][n] = add_pairs(sums[m][n], words);
            });
        });
    }

    // One step.
    void add_one(const uint8_t* a, int64_t row, const int8_t* w) {
        Ints codes[M];
        unrolled<M>([&](auto m) { codes[m] = load_four(a + m * row); });
        add<1, 0>(codes, w);
    }
};

template <int M, int N, int chunk>
void multiply_chunks(const Operands& o) {
    Tile<M, N> tile(o);
    const int8_t* w = o.w;
    const int64_t row = o.row, steps = o.steps;
    const uint8_t* rows[M];
    unrolled<M>([&](auto m) { rows[m] = o.a + m * row; });
    int64_t step = 0;
    for (; step + 4 <= steps; step += 4) {
        Ints codes[M];
        unrolled<M>([&](auto m) { codes[m] = load<Ints>(rows[m] + step * 4); });
        unrolled<4 / chunk>([&](auto i) {
            tile.template add<chunk, decltype(i)::value * chunk>(codes, w);
            w += N * kRegister * chunk;
        });
    }
    // Words that hold the sums of a chunk hold those of each step.
    for (; step < steps; ++step, w += N * kRegister) tile.add_one(o.a + step * 4, row, w);
    const int8_t* rest = o.extra.rest;
    for (const int32_t* extra = o.extra.begin; extra != o.extra.end; ++extra) {
        tile.add_one(o.a + *extra * int64_t{4}, row, rest);
        rest += 2 * kRegister;
    }
    tile.store_sums(o);
}

template <int M, int N>
void multiply_bytes(const Operands& o) {
    if (o.extra.chunk == 2) return multiply_chunks<M, N, 2>(o);
    multiply_chunks<M, N, 1>(o);
}

}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/level_body.h"
#endif

namespace qgraph::engine::kernels {

const Kernels* neon_kernels() {
#if defined(__aarch64__) && defined(__ARM_NEON)
    return &kKernels;
#else
    return nullptr;
#endif
}

}  // namespace qgraph::engine::kernels
