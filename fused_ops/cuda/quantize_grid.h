// What one thread of the CUDA kernels does, as functions of its place in the grid. They run on a
// CPU too, where fused_ops/tests/grid_test.cpp calls them for each thread in turn.
//
// A thread block takes a tile: kTile columns of one block of the sum (quantize.h), which is kLeaves
// leaves of kLeafRows rows. A thread takes a leaf of Vec columns, so that rows next to each other
// in memory are read by threads next to each other, and its sums need no other thread.
#pragma once

#include <cstdint>

#include "core/quantize_element.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace qgraph {
namespace {

constexpr int kTile = 32;
constexpr int kBatch = 4;  // rows that a thread has on their way at a time
constexpr int64_t kMaxChannels = 1 << 29;
constexpr double kLn2 = 0.693147180559945309417232121458;

// Arguments of a kernel; all pointers are to the device's memory. What g and partial are for,
// gradients, the forward pass has not.
struct Grid {
    const void* x;
    const void* g;
    void* out;
    int64_t count;
    const int32_t* f;
    int64_t channels;
    float low, high;
    double* partial;  // sums of each block: [blocks][columns]

    QGRAPH_INLINE int64_t columns() const { return channels == 1 ? kLanes : channels; }
    QGRAPH_INLINE int64_t rows() const { return (count + columns() - 1) / columns(); }
    QGRAPH_INLINE int64_t leaves() const { return (rows() + kLeafRows - 1) / kLeafRows; }
    QGRAPH_INLINE int64_t blocks() const { return (leaves() + kLeaves - 1) / kLeaves; }
    QGRAPH_INLINE int64_t tiles() const { return (columns() + kTile - 1) / kTile; }
    QGRAPH_INLINE int32_t exponent(int64_t column) const { return f[channels == 1 ? 0 : column]; }
};

template <Type T>
struct Storage {
    typedef uint16_t Element;
};
template <>
struct Storage<Type::float32> {
    typedef float Element;
};
template <Type T>
using Element = typename Storage<T>::Element;

template <Type T>
QGRAPH_INLINE float widened(Element<T> narrow) {
    if constexpr (T == Type::float32) {
        return narrow;
    } else if constexpr (T == Type::bfloat16) {
        return from_bfloat16<Scalar>(narrow);
    } else {
#ifdef __CUDA_ARCH__
        return __half2float(__ushort_as_half(narrow));
#else
        return from_float16<Scalar>(narrow);
#endif
    }
}

template <Type T>
QGRAPH_INLINE Element<T> narrowed(float v) {
    if constexpr (T == Type::float32) return v;
#ifdef __CUDA_ARCH__
    if constexpr (T == Type::bfloat16) return __bfloat16_as_ushort(__float2bfloat16_rn(v));
    if constexpr (T == Type::float16) return __half_as_ushort(__float2half_rn(v));
#else
    if constexpr (T == Type::bfloat16) return static_cast<uint16_t>(to_bfloat16<Scalar>(v));
    if constexpr (T == Type::float16) return static_cast<uint16_t>(to_float16<Scalar>(v));
#endif
}

// Elements that one thread reads and writes at once.
template <Type T, int Vec>
struct alignas(sizeof(Element<T>) * Vec) Pack {
    Element<T> of[Vec];
};

// The `size` elements at `at`; zeros, which add nothing, in place of the rest.
template <Type T, int Vec>
QGRAPH_INLINE Pack<T, Vec> load(const void* from, int64_t at, int64_t size) {
    const Element<T>* place = static_cast<const Element<T>*>(from) + at;
    if (size >= Vec) return *reinterpret_cast<const Pack<T, Vec>*>(place);
    Pack<T, Vec> pack{};
#pragma unroll
    for (int k = 0; k < Vec; ++k) {
        if (k < size) pack.of[k] = place[k];
    }
    return pack;
}

// As a whole; the compiler would take it apart.
template <class P>
QGRAPH_INLINE void move(P* to, const P& pack) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(P) == sizeof(uint4)) {
        return __stwb(reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4&>(pack));
    } else if constexpr (sizeof(P) == sizeof(uint2)) {
        return __stwb(reinterpret_cast<uint2*>(to), reinterpret_cast<const uint2&>(pack));
    }
#endif
    *to = pack;
}

template <Type T, int Vec>
QGRAPH_INLINE void store(void* to, int64_t at, int64_t size, const Pack<T, Vec>& pack) {
    Element<T>* place = static_cast<Element<T>*>(to) + at;
    if (size >= Vec) {
        move(reinterpret_cast<Pack<T, Vec>*>(place), pack);
        return;
    }
#pragma unroll
    for (int k = 0; k < Vec; ++k) {
        if (k < size) place[k] = pack.of[k];
    }
}

QGRAPH_INLINE Params<Scalar> params_of(const Grid& grid, int64_t column) {
    const int32_t f = grid.exponent(column);
    const auto power = [](int32_t e) {
        return Scalar::value(static_cast<uint32_t>(127 + e) << 23);
    };
    return {power(f), power(-f), grid.low, grid.high};
}

// Rows of one leaf, Vec columns of them; adds to sums[Vec] in the backward pass. All are read
// before any is written: out may be x or g.
template <Rounding R, Type T, bool Backward, int Vec, int Rows>
QGRAPH_INLINE void batch(const Grid& grid, int64_t first, const Params<Scalar>* params,
                         double* sums) {
    Pack<T, Vec> x[Rows];
    Pack<T, Vec> g[Rows];
    const auto stride = static_cast<uint32_t>(grid.columns());  // 64 bits would take registers
    const auto at = [&](uint32_t i) { return first + i * stride; };
    const auto size = [&](uint32_t i) { return Rows > 1 ? Vec : grid.count - at(i); };
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
        x[i] = load<T, Vec>(grid.x, at(i), size(i));
        if constexpr (Backward) g[i] = load<T, Vec>(grid.g, at(i), size(i));
    }
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
        Pack<T, Vec> out;
#pragma unroll
        for (int k = 0; k < Vec; ++k) {
            const float value = widened<T>(x[i].of[k]);
            if constexpr (Backward) {
                const float upstream = widened<T>(g[i].of[k]);
                const auto found = gradient<R, Scalar>(value, upstream, params[k]);
                out.of[k] = narrowed<T>(found.gx);
                // The product is exact, 24 bits by 24 fit into 53: rounded once either way.
                sums[k] =
                    fma(static_cast<double>(upstream), static_cast<double>(found.slope), sums[k]);
            } else {
                out.of[k] = narrowed<T>(quantized<R, Scalar>(value, params[k]));
            }
        }
        store<T, Vec>(grid.out, at(i), size(i), out);
    }
}

// One leaf, Vec columns of it.
template <Rounding R, Type T, bool Backward, int Vec>
QGRAPH_INLINE void leaf(const Grid& grid, int64_t leaf, int64_t column, double* sums) {
    Params<Scalar> params[Vec];
#pragma unroll
    for (int k = 0; k < Vec; ++k) params[k] = params_of(grid, column + k);
    const int64_t begin = leaf * kLeafRows * grid.columns();
    int64_t at = begin + column;
    if (begin + kLeafRows * grid.columns() <= grid.count) {
#pragma unroll 1
        for (int row = 0; row < kLeafRows; row += kBatch, at += kBatch * grid.columns()) {
            batch<R, T, Backward, Vec, kBatch>(grid, at, params, sums);
        }
    } else {
#pragma unroll 1
        for (int row = 0; row < kLeafRows && at < grid.count; ++row, at += grid.columns()) {
            batch<R, T, Backward, Vec, 1>(grid, at, params, sums);
        }
    }
}

// Where a thread is. Threads of a block are x (columns) by y (leaves).
struct Place {
    int64_t block;
    int x, y;
    int leaves;  // threads in y
};

template <Rounding R, Type T, int Vec>
QGRAPH_INLINE void forward_thread(const Grid& grid, const Place& place) {
    const int64_t column = place.block % grid.tiles() * kTile + place.x * Vec;
    const int64_t row_of_leaves = place.block / grid.tiles();
    const int64_t at = row_of_leaves * place.leaves + place.y;
    if (column >= grid.columns() || at >= grid.leaves()) return;
    leaf<R, T, false, Vec>(grid, at, column, nullptr);
}

typedef double LeafSums[kLeaves][kTile];

// The backward pass, first step: each thread its leaf.
template <Rounding R, Type T, int Vec>
QGRAPH_INLINE void backward_thread(const Grid& grid, const Place& place, LeafSums& shared) {
    const int64_t column = place.block % grid.tiles() * kTile + place.x * Vec;
    const int64_t at = place.block / grid.tiles() * kLeaves + place.y;
    double sums[Vec] = {};
    if (column < grid.columns() && at < grid.leaves()) {
        leaf<R, T, true, Vec>(grid, at, column, sums);
    }
#pragma unroll
    for (int k = 0; k < Vec; ++k) shared[place.y][place.x * Vec + k] = sums[k];
}

// Second step, when all leaves are in `shared`: the first kTile threads a column each.
QGRAPH_INLINE void add_leaves(const Grid& grid, const Place& place, int thread,
                              const LeafSums& shared) {
    const int64_t column = place.block % grid.tiles() * kTile + thread;
    if (thread >= kTile || column >= grid.columns()) return;
    double sum = shared[0][thread];
#pragma unroll
    for (int i = 1; i < kLeaves; ++i) sum += shared[i][thread];
    grid.partial[place.block / grid.tiles() * grid.columns() + column] = sum;
}

// The second kernel, whose blocks have kTile columns by kSpans spans: in each round each thread
// adds up a span; then the first row of threads adds those up, one after the other.
constexpr int kSpans = 32;
typedef double SpanSums[kSpans][kTile];

QGRAPH_INLINE int64_t rounds(const Grid& grid) {
    return (grid.blocks() + kBlocks * kSpans - 1) / (kBlocks * kSpans);
}

QGRAPH_INLINE void add_blocks(const Grid& grid, const Place& place, int64_t round,
                              SpanSums& shared) {
    const int64_t column = place.block * kTile + place.x;
    const int64_t first = (round * kSpans + place.y) * kBlocks;
    double sum = 0;
    if (column < grid.columns() && first < grid.blocks()) {
        sum = grid.partial[first * grid.columns() + column];
#pragma unroll
        for (int i = 1; i < kBlocks; ++i) {
            if (first + i < grid.blocks()) {
                sum += grid.partial[(first + i) * grid.columns() + column];
            }
        }
    }
    shared[place.y][place.x] = sum;
}

QGRAPH_INLINE double add_spans(double total, const Place& place, const SpanSums& shared) {
#pragma unroll
    for (int i = 0; i < kSpans; ++i) total += shared[i][place.x];
    return total;
}

// Adds the upper half of the lanes to the lower; for a tensor with one threshold.
QGRAPH_INLINE void fold_lanes(const Place& place, int half, double (&lanes)[kTile]) {
    if (place.x < half) lanes[place.x] += lanes[place.x + half];
}

QGRAPH_INLINE void finish(const Grid& grid, const Place& place, const double (&lanes)[kTile],
                          double* glog2t) {
    const int64_t channel = place.block * kTile + place.x;
    if (channel >= grid.channels) return;
    const double step = params_of(grid, channel).step;
    glog2t[channel] = step * kLn2 * lanes[place.x] + 0.0;  // no -0
}

}  // namespace
}  // namespace qgraph
