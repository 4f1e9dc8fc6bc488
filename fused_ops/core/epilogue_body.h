// The epilogue's kernels, forward and backward, in the vectors of one instruction set.
#pragma once

#include "core/epilogue_strip.h"
#include "core/vectors.h"

namespace qgraph {
namespace {

typedef Lanes<kWidth> EpilogueOps;
typedef EpilogueOps::Value EpilogueValue;

struct StripParams {
    Params<EpilogueOps> inner, outer;

    explicit StripParams(const Strip& s)
        : inner{all(s.inner_scale), all(s.inner_step), all(s.inner_low), all(s.inner_high)},
          outer{all(s.outer_scale), all(s.outer_step), all(s.outer_low), all(s.outer_high)} {}

    static EpilogueValue all(float v) { return EpilogueValue{} + v; }
};

inline EpilogueValue load_floats(const float* from, int64_t at) {
    return load<Type::float32, kWidth>(from, at);
}

inline void put(const Strip& s, int64_t at, EpilogueValue v) {
    if (s.stream) return store<Type::float32, kWidth, true>(s.out, at, v);
    store<Type::float32, kWidth, false>(s.out, at, v);
}

// Adds each of a vector to its sum.
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

// Up to kLeafRows rows from `row` on; gives the channel of what comes next. The strip is a copy,
// which no store changes.
template <Rounding R, Activation A, bool Backward>
inline int64_t strip_leaf(Strip s, int64_t row, int64_t rows, int64_t channel) {
    typedef EpilogueOps Ops;
    constexpr int kParts = kLanes / kWidth;
    constexpr bool kRectifies = A != Activation::none;
    constexpr bool kClips = A == Activation::clip;
    const int64_t step = kLanes % s.channels;
    const StripParams params(s);
    Sums<kWidth> inner_sums[kParts];
    Sums<kWidth> outer_sums[kParts];
    for (const int64_t end = row + rows; row < end; ++row) {
        for (int part = 0; part < kParts; ++part) {
            const int64_t at = row * kLanes + part * kWidth;
            const int64_t slot = channel + part * kWidth;
            const EpilogueValue x = load_floats(s.x, at);
            const EpilogueValue z = quantized<R, Ops>(x, params.inner) + load_floats(s.bias, slot);
            // Comparisons are false for NaN, which stays.
            EpilogueValue positive = z;
            if constexpr (kRectifies) positive = z < 0.0f ? EpilogueValue{} : z;
            const EpilogueValue high = kClips ? load_floats(s.high, slot) : EpilogueValue{};
            EpilogueValue v = positive;
            if constexpr (kClips) v = positive > high ? high : positive;
            if constexpr (Backward) {
                const EpilogueValue g = load_floats(s.g, at);
                const Gradient<Ops> outer = gradient<R, Ops>(v, g, params.outer);
                outer_sums[part].add(g, outer.slope);
                EpilogueValue gz = outer.gx;
                if constexpr (kClips) {
                    const auto passes = positive <= load_floats(s.last, slot);
                    const EpilogueValue clipped = passes ? EpilogueValue{} : gz;
                    if (any(clipped)) add_each(clipped, s.high_sums + slot);  // it is rare
                    gz = passes ? gz : EpilogueValue{};
                }
                if constexpr (kRectifies) gz = z > 0.0f ? gz : EpilogueValue{};
                add_each(gz, s.bias_sums + slot);
                const Gradient<Ops> inner = gradient<R, Ops>(x, gz, params.inner);
                inner_sums[part].add(gz, inner.slope);
                put(s, at, inner.gx);
            } else {
                put(s, at, quantized<R, Ops>(v, params.outer));
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
