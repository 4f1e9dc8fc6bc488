// The epilogue's kernels, forward and backward, written with the vectors of one instruction set.
#pragma once

#include "core/epilogue_element.h"
#include "core/epilogue_strip.h"
#include "core/vectors.h"

namespace qgraph {
namespace {

typedef Lanes<kWidth> EpilogueOps;
typedef EpilogueOps::Value EpilogueValue;

inline Stage<EpilogueOps> stage_of(const Strip& s) {
    const auto all = [](float v) { return EpilogueValue{} + v; };
    return {{all(s.inner_scale), all(s.inner_step), all(s.inner_low), all(s.inner_high)},
            {all(s.outer_scale), all(s.outer_step), all(s.outer_low), all(s.outer_high)}};
}

inline EpilogueValue load_floats(const float* from, int64_t at) {
    return load<Type::float32, kWidth>(from, at);
}

inline void put(const Strip& s, int64_t at, EpilogueValue v) {
    if (s.stream) return store<Type::float32, kWidth, true>(s.out, at, v);
    store<Type::float32, kWidth, false>(s.out, at, v);
}

// Adds each element of a vector to its own sum.
inline void add_each(EpilogueValue v, double* sums) {
    typedef Sums<kWidth> Parts;
    typedef typename Vector<Parts::kPart>::UnalignedDoubles To;
    for (int i = 0; i < kWidth / Parts::kPart; ++i) {
        reinterpret_cast<To*>(sums)[i] += Parts::doubled(v, i);
    }
}

inline bool any(EpilogueValue v) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NEQ_UQ) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NEQ_UQ)) != 0;
#else
    bool found = false;
    for (int i = 0; i < kWidth; ++i) found |= v[i] != 0.0f;
    return found;
#endif
}

// Processes up to kLeafRows rows from `row` on and returns the channel of the next element. The
// strip is passed by value: the compiler then knows that no store changes it.
template <Rounding R, Activation A, bool Backward>
inline int64_t strip_leaf(Strip s, int64_t row, int64_t rows, int64_t channel) {
    typedef EpilogueOps Ops;
    constexpr int kParts = kLanes / kWidth;
    constexpr bool kClips = A == Activation::clip;
    const int64_t step = kLanes % s.channels;
    const Stage<Ops> stage = stage_of(s);
    Sums<kWidth> inner_sums[kParts];
    Sums<kWidth> outer_sums[kParts];
    for (const int64_t end = row + rows; row < end; ++row) {
        for (int part = 0; part < kParts; ++part) {
            const int64_t at = row * kLanes + part * kWidth;
            const int64_t slot = channel + part * kWidth;
            const EpilogueValue x = load_floats(s.x, at);
            const EpilogueValue bias = load_floats(s.bias, slot);
            const EpilogueValue high = kClips ? load_floats(s.high, slot) : EpilogueValue{};
            if constexpr (Backward) {
                const EpilogueValue g = load_floats(s.g, at);
                const EpilogueValue last = kClips ? load_floats(s.last, slot) : EpilogueValue{};
                const auto found = stage_gradient<R, A, Ops>(x, g, bias, high, last, stage);
                outer_sums[part].add(g, found.outer_slope);
                if constexpr (kClips) {
                    if (any(found.clipped)) add_each(found.clipped, s.high_sums + slot);  // rare
                }
                add_each(found.gz, s.bias_sums + slot);
                inner_sums[part].add(found.gz, found.inner_slope);
                put(s, at, found.gx);
            } else {
                const auto found = activated<R, A, Ops>(x, bias, high, stage.inner);
                put(s, at, quantized<R, Ops>(found.v, stage.outer));
            }
        }
        channel += step;
        if (channel >= s.channels) channel -= s.channels;
    }
    if constexpr (Backward) {
        for (int part = 0; part < kParts; ++part) {
            inner_sums[part].add_to(s.inner_sums + part * kWidth);
            outer_sums[part].add_to(s.outer_sums + part * kWidth);
        }
    }
    return channel;
}

template <Rounding R, Activation A, bool Backward>
void run_strip(const Strip& s) {
    const IeeeArithmetic ieee;
    int64_t channel = s.channel;
    for (int64_t row = 0; row < s.rows; row += kLeafRows) {
        const int64_t rows = s.rows - row < kLeafRows ? s.rows - row : kLeafRows;
        channel = strip_leaf<R, A, Backward>(s, row, rows, channel);
    }
    if (s.stream) finish_streams();
}

template <bool Backward>
constexpr ByActivation kEpilogues{{{run_strip<Rounding::half_even, Activation::none, Backward>,
                                    run_strip<Rounding::half_up, Activation::none, Backward>,
                                    run_strip<Rounding::half_away, Activation::none, Backward>,
                                    run_strip<Rounding::floor, Activation::none, Backward>,
                                    run_strip<Rounding::half_away, Activation::none, Backward>},
                                   {run_strip<Rounding::half_even, Activation::relu, Backward>,
                                    run_strip<Rounding::half_up, Activation::relu, Backward>,
                                    run_strip<Rounding::half_away, Activation::relu, Backward>,
                                    run_strip<Rounding::floor, Activation::relu, Backward>,
                                    run_strip<Rounding::half_away, Activation::relu, Backward>},
                                   {run_strip<Rounding::half_even, Activation::clip, Backward>,
                                    run_strip<Rounding::half_up, Activation::clip, Backward>,
                                    run_strip<Rounding::half_away, Activation::clip, Backward>,
                                    run_strip<Rounding::floor, Activation::clip, Backward>,
                                    run_strip<Rounding::half_away, Activation::clip, Backward>}}};

}  // namespace
}  // namespace qgraph
