// The work of one thread of the epilogue's CUDA kernels, as functions of its place in the grid.
// They also run on a CPU, where fused_ops/tests/epilogue_grid_test.cpp calls them for each thread
// in turn.
//
// Forward, a thread processes kBatch packs of Vec elements. Backward, a thread block processes one
// block of the sums (core/epilogue.h), in kParts parts of kPartLeaves leaves. In each part a thread
// first processes one column of a leaf: its sums for thresholds need no other thread, and it writes
// the gradients of the bias to shared memory. Then each thread adds these for its slots, row after
// row.
#pragma once

#include "core/epilogue_element.h"
#include "cuda/epilogue.h"
#include "cuda/reduce_grid.h"

namespace qgraph {
namespace {

constexpr int kPartLeaves = 8;
constexpr int kParts = static_cast<int>(kLeaves) / kPartLeaves;
constexpr int kPartRows = kPartLeaves * static_cast<int>(kLeafRows);
constexpr int kPart = kPartRows * static_cast<int>(kLanes);  // elements
constexpr int kThreads = kPartLeaves * static_cast<int>(kLanes);

// Arguments of a kernel; all pointers are to the device's memory. The forward pass has neither g
// nor sums.
struct EpilogueGrid {
    const float* x;
    const float* g;
    float* out;
    int64_t count;
    int64_t channels;
    const float* bias;
    const float* high;  // for Activation::clip
    bool open;          // true: no gradient at exactly v = high
    Codes inner, outer;
    // Sums of each block: [blocks][kLanes], and [blocks][slots].
    double* inner_sums;
    double* outer_sums;
    double* bias_sums;
    double* high_sums;  // for Activation::clip

    QGRAPH_INLINE int64_t blocks() const { return (count + kPart * kParts - 1) / (kPart * kParts); }
    QGRAPH_INLINE int64_t slots() const { return channels + kLanes - 1; }
    QGRAPH_INLINE int64_t channel(int64_t at) const {
        return at >> 32 == 0 ? static_cast<uint32_t>(at) % static_cast<uint32_t>(channels)
                             : at % channels;
    }
    QGRAPH_INLINE Stage<Scalar> stage() const { return {params_of(inner, 0), params_of(outer, 0)}; }
};

template <int Vec>
constexpr int64_t kForwardElements = int64_t{kThreads} * Vec * kBatch;

// Vec neighbouring channels. With Vec > 1, the number of channels and addresses are multiples of
// Vec.
template <Rounding R, Activation A, int Vec>
QGRAPH_INLINE void epilogue_thread(const EpilogueGrid& grid, const Place& place) {
    typedef Pack<Type::float32, Vec> Floats;
    constexpr int kStep = kThreads * Vec;
    const int64_t first = place.block * kForwardElements<Vec> + place.x * Vec;
    Floats x[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
        if (first + i * kStep < grid.count) {
            x[i] = load<Type::float32, Vec>(grid.x, first + i * kStep, Vec);
        }
    }
    const Stage<Scalar> stage = grid.stage();
    const int64_t step = kStep % grid.channels;
    int64_t channel = grid.channel(first);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
        if (first + i * kStep < grid.count) {
            const auto bias = load<Type::float32, Vec>(grid.bias, channel, Vec);
            Floats high{};
            if constexpr (A == Activation::clip) {
                high = load<Type::float32, Vec>(grid.high, channel, Vec);
            }
            Floats out;
#pragma unroll
            for (int k = 0; k < Vec; ++k) {
                const auto at =
                    activated<R, A, Scalar>(x[i].of[k], bias.of[k], high.of[k], stage.inner);
                out.of[k] = quantized<R, Scalar>(at.v, stage.outer);
            }
            store<Type::float32, Vec>(grid.out, first + i * kStep, Vec, out);
        }
        channel += step;
        if (channel >= grid.channels) channel -= grid.channels;
    }
}

// Data that the threads of a block exchange.
template <Activation A>
struct PartSums {
    float gz[kPart];  // the gradient of the bias, or of high where v is clipped
    uint8_t at_high[A == Activation::clip ? kPart : 1];
    double inner[kPartLeaves][kLanes];
    double outer[kPartLeaves][kLanes];
};

// Gradients pass the clip up to this value. The clipped value is not negative.
QGRAPH_INLINE float last_of(const EpilogueGrid& grid, float high) {
    if (!grid.open) return high;
    return high > 0.0f ? Scalar::value(Scalar::bits(high) - 1) : -1.0f;
}

// First step of a part: each thread processes one column of a leaf.
template <Rounding R, Activation A>
QGRAPH_INLINE void epilogue_leaf(const EpilogueGrid& grid, const Place& place, int part,
                                 PartSums<A>& shared) {
    constexpr bool kClips = A == Activation::clip;
    const int place_in_part = place.y * static_cast<int>(kLeafRows * kLanes) + place.x;
    const int64_t first = (place.block * kParts + part) * kPart + place_in_part;
    const int64_t rest = grid.count - first;
    const int size = static_cast<int>(rest < kPart ? rest : kPart);
    const Stage<Scalar> stage = grid.stage();
    const auto channels = static_cast<uint32_t>(grid.channels);
    const uint32_t step = static_cast<uint32_t>(kLanes) % channels;
    auto channel = static_cast<uint32_t>(grid.channel(first));
    double inner = 0;
    double outer = 0;
#pragma unroll 1
    for (int row = 0; row < kLeafRows; row += kBatch) {
        float x[kBatch];
        float g[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int at = (row + i) * static_cast<int>(kLanes);
            x[i] = at < size ? grid.x[first + at] : 0.0f;
            g[i] = at < size ? grid.g[first + at] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int at = (row + i) * static_cast<int>(kLanes);
            const float high = kClips ? grid.high[channel] : 0.0f;
            const auto found = stage_gradient<R, A, Scalar>(x[i], g[i], grid.bias[channel], high,
                                                            last_of(grid, high), stage);
            // The products of 24-bit significands are exact in 53 bits, so fusing changes no
            // result.
            inner =
                fma(static_cast<double>(found.gz), static_cast<double>(found.inner_slope), inner);
            outer = fma(static_cast<double>(g[i]), static_cast<double>(found.outer_slope), outer);
            const bool clipped = kClips && Scalar::bits(found.clipped) != 0;
            shared.gz[place_in_part + at] = clipped ? found.clipped : found.gz;
            if constexpr (kClips) shared.at_high[place_in_part + at] = clipped;
            if (at < size) grid.out[first + at] = found.gx;
            channel += step;
            if (channel >= channels) channel -= channels;
        }
    }
    shared.inner[place.y][place.x] = inner;
    shared.outer[place.y][place.x] = outer;
}

// Second step: the first threads add up leaves, kLanes threads for each quantizer. Each keeps its
// own `total` from part to part.
template <Activation A>
QGRAPH_INLINE void add_part(int thread, const PartSums<A>& shared, double& total) {
    if (thread >= 2 * kLanes) return;
    const auto& leaves = thread < kLanes ? shared.inner : shared.outer;
#pragma unroll
    for (int i = 0; i < kPartLeaves; ++i) total += leaves[i][thread % kLanes];
}

// Sums of bias and high in one slot.
struct SlotSums {
    double bias, high;
};

template <Activation A>
QGRAPH_INLINE void add_element(const PartSums<A>& shared, int at, SlotSums& sums) {
    const double value = shared.gz[at];
    if constexpr (A == Activation::clip) {
        const bool high = shared.at_high[at] != 0;
        sums.bias += high ? 0.0 : value;
        sums.high += high ? value : 0.0;
    } else {
        sums.bias += value;
    }
}

// Adds the gradients of a part to a slot, row after row. `start` is the channel of the part's first
// element.
template <Activation A>
QGRAPH_INLINE void add_slot(const PartSums<A>& shared, int slot, int channels, int start,
                            SlotSums& sums) {
    constexpr int kWidth = static_cast<int>(kLanes);
    if (channels < kWidth) {
#pragma unroll 4
        for (int row = 0; row < kPartRows; ++row) {
            const int lane = slot - start;
            if (lane >= 0 && lane < kWidth) add_element(shared, row * kWidth + lane, sums);
            start += kWidth % channels;
            if (start >= channels) start -= channels;
        }
        return;
    }
    // Elements of the slot's channel. A row may continue in slots after the last channel.
    int at = slot % channels - start;
    if (at < 0) at += channels;
#pragma unroll 4
    for (; at < kPart; at += channels) {
        const int lane = at % kWidth;
        if (lane <= slot && lane > slot - channels) add_element(shared, at, sums);
    }
}

// Second step of each thread: it updates its slots, whose sums stay in the device's memory from
// part to part.
template <Activation A>
QGRAPH_INLINE void add_slots(const EpilogueGrid& grid, int64_t block, int part, int thread,
                             const PartSums<A>& shared) {
    constexpr bool kClips = A == Activation::clip;
    const auto start = static_cast<int>(grid.channel((block * kParts + part) * kPart));
    for (int64_t slot = thread; slot < grid.slots(); slot += kThreads) {
        const int64_t at = block * grid.slots() + slot;
        SlotSums sums{};
        if (part > 0) {
            sums.bias = grid.bias_sums[at];
            if constexpr (kClips) sums.high = grid.high_sums[at];
        }
        add_slot(shared, static_cast<int>(slot), static_cast<int>(grid.channels), start, sums);
        grid.bias_sums[at] = sums.bias;
        if constexpr (kClips) grid.high_sums[at] = sums.high;
    }
}

QGRAPH_INLINE void fold_slots(const EpilogueGrid& grid, int64_t channel, double* slots) {
    double sum = slots[channel];
    for (int64_t slot = channel + grid.channels; slot < grid.slots(); slot += grid.channels) {
        sum += slots[slot];
    }
    slots[channel] = sum;
}

// Last step: writes the sums of the block to the place where the reduction reads them.
template <Activation A>
QGRAPH_INLINE void finish_block(const EpilogueGrid& grid, int64_t block, int thread, double total) {
    if (thread < kLanes) grid.inner_sums[block * kLanes + thread] = total;
    if (thread >= kLanes && thread < 2 * kLanes) {
        grid.outer_sums[block * kLanes + thread - kLanes] = total;
    }
    for (int64_t channel = thread; channel < grid.channels; channel += kThreads) {
        fold_slots(grid, channel, grid.bias_sums + block * grid.slots());
        if constexpr (A == Activation::clip) {
            fold_slots(grid, channel, grid.high_sums + block * grid.slots());
        }
    }
}

// The activations of cuda/epilogue.h.
enum class Kind { none, relu, relu6, clip };
constexpr int kKinds = 4;

inline Activation activation_of(Kind kind) {
    if (kind == Kind::none) return Activation::none;
    return kind == Kind::relu ? Activation::relu : Activation::clip;
}

inline EpilogueGrid grid_of(const qgraph_cuda_epilogue& e, const float* x, const float* g,
                            float* out, int64_t count, double* workspace) {
    const auto codes = [](const qgraph_cuda_codes& q) {
        return Codes{q.log2_t, q.bits, q.low, q.high};
    };
    const auto kind = static_cast<Kind>(e.activation);
    EpilogueGrid grid{x,
                      g,
                      out,
                      count,
                      e.channels,
                      e.bias,
                      e.high,
                      kind == Kind::relu6,
                      codes(e.inner),
                      codes(e.outer),
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr};
    if (workspace == nullptr) return grid;
    grid.inner_sums = workspace;
    grid.outer_sums = grid.inner_sums + grid.blocks() * kLanes;
    grid.bias_sums = grid.outer_sums + grid.blocks() * kLanes;
    if (activation_of(kind) == Activation::clip) {
        grid.high_sums = grid.bias_sums + grid.blocks() * grid.slots();
    }
    return grid;
}

// Bytes of the workspace.
inline int64_t workspace_of(int64_t count, int64_t channels, Kind kind) {
    EpilogueGrid grid{};
    grid.count = count;
    grid.channels = channels;
    const int64_t rows = activation_of(kind) == Activation::clip ? 2 : 1;
    return grid.blocks() * (2 * kLanes + rows * grid.slots()) *
           static_cast<int64_t>(sizeof(double));
}

inline Reductions reductions_of(const EpilogueGrid& grid, const qgraph_cuda_epilogue_results& to) {
    const bool narrow = to.narrow != 0;
    const auto lanes = [&](const double* sums, const Codes& codes, void* out) {
        return Reduction{sums, grid.blocks(), kLanes, kLanes, codes, {out, narrow}, true};
    };
    const auto slots = [&](const double* sums, void* out) {
        return Reduction{sums, grid.blocks(), grid.channels, grid.slots(),
                         {},   {out, narrow}, false};
    };
    return {{lanes(grid.inner_sums, grid.inner, to.inner_log2_t),
             lanes(grid.outer_sums, grid.outer, to.log2_t), slots(grid.bias_sums, to.bias),
             slots(grid.high_sums, to.high)},
            grid.high_sums == nullptr ? 3 : 4};
}

}  // namespace
}  // namespace qgraph
