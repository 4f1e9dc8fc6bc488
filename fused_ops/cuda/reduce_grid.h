// The last step of a sum, for one thread: sums of blocks are added up in the order of
// core/quantize.h. A thread block has kTile columns by kSpans spans. In each round each thread adds
// up a span; then the first row of threads adds up the spans in order.
#pragma once

#include "cuda/thread.h"

namespace qgraph {
namespace {

constexpr int kSpans = 32;
constexpr int kMaxReductions = 4;
constexpr double kSlopeOfPower = 0.693147180559945309417232121458;  // ln 2
typedef double SpanSums[kSpans][kTile];

// Where sums are written: as float64, or rounded to float32.
struct Sums {
    void* out;
    bool narrow;
};

struct Reduction {
    const double* partial;  // [blocks][stride]; the first `columns` columns are added up
    int64_t blocks, columns, stride;
    Codes codes;  // for a threshold's gradient; otherwise log2_t is null
    Sums to;
    bool lanes;  // true: the columns are the kLanes parts of one sum

    QGRAPH_INLINE int64_t tiles() const { return (columns + kTile - 1) / kTile; }
    QGRAPH_INLINE int64_t rounds() const {
        return (blocks + kBlocks * kSpans - 1) / (kBlocks * kSpans);
    }
};

// Several reductions, as arguments of one kernel.
struct Reductions {
    Reduction of[kMaxReductions];
    int count;

    QGRAPH_INLINE int64_t tiles() const {
        int64_t tiles = 0;
        for (int i = 0; i < count; ++i) tiles += of[i].tiles();
        return tiles;
    }
    // The reduction that a thread block belongs to; `block` becomes its index within that
    // reduction.
    QGRAPH_INLINE const Reduction& at(int64_t& block) const {
        int i = 0;
        for (; block >= of[i].tiles(); ++i) block -= of[i].tiles();
        return of[i];
    }
};

QGRAPH_INLINE void add_blocks(const Reduction& r, const Place& place, int64_t round,
                              SpanSums& shared) {
    const int64_t column = place.block * kTile + place.x;
    const int64_t first = (round * kSpans + place.y) * kBlocks;
    double sum = 0;
    if (column < r.columns && first < r.blocks) {
        sum = r.partial[first * r.stride + column];
#pragma unroll
        for (int i = 1; i < kBlocks; ++i) {
            if (first + i < r.blocks) sum += r.partial[(first + i) * r.stride + column];
        }
    }
    shared[place.y][place.x] = sum;
}

QGRAPH_INLINE double add_spans(double total, const Place& place, const SpanSums& shared) {
#pragma unroll
    for (int i = 0; i < kSpans; ++i) total += shared[i][place.x];
    return total;
}

// Adds the upper half of the lanes to the lower half.
QGRAPH_INLINE void fold_lanes(const Place& place, int half, double (&lanes)[kTile]) {
    if (place.x < half) lanes[place.x] += lanes[place.x + half];
}

QGRAPH_INLINE void finish(const Reduction& r, const Place& place, const double (&lanes)[kTile]) {
    const int64_t column = place.block * kTile + place.x;
    if (column >= (r.lanes ? 1 : r.columns)) return;
    double sum = lanes[place.x];
    if (r.codes.log2_t != nullptr) {
        const double step = params_of(r.codes, column).step;
        sum = step * kSlopeOfPower * sum + 0.0;  // no -0
    }
    if (r.to.narrow) {
        static_cast<float*>(r.to.out)[column] = static_cast<float>(sum);
    } else {
        static_cast<double*>(r.to.out)[column] = sum;
    }
}

}  // namespace
}  // namespace qgraph
