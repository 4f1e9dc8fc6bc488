// The kernels of batch norms, written with the vectors of one instruction set.
#pragma once

#include "core/norm_rows.h"
#include "core/vectors.h"

namespace qgraph {
namespace {

typedef Sums<kWidth> NormParts;
typedef typename Vector<NormParts::kPart>::Doubles NormDoubles;
typedef typename Vector<NormParts::kPart>::UnalignedDoubles NormSumsAt;
typedef Floats<kWidth> NormValue;

inline NormValue norm_load(const float* from, int64_t at) {
    return load<Type::float32, kWidth>(from, at);
}

// Calls body(at, slot) for each vector: its element, and its place among the channels.
template <class Body>
inline void each_vector(int64_t rows, int64_t channel, int64_t channels, const Body& body) {
    const IeeeArithmetic ieee;
    const int64_t step = kLanes % channels;
    for (int64_t row = 0; row < rows; ++row) {
        for (int part = 0; part < kLanes / kWidth; ++part) {
            body(row * kLanes + part * kWidth, channel + part * kWidth);
        }
        channel += step;
        if (channel >= channels) channel -= channels;
    }
}

// The structs are copied: the compiler then knows that no store changes them.
inline void add_moments(const NormRows& given) {
    const NormRows s = given;
    each_vector(s.rows, s.channel, s.channels, [&](int64_t at, int64_t slot) {
        const NormValue x = norm_load(s.x, at);
        const NormValue centre = norm_load(s.centre, slot);
        for (int i = 0; i < kWidth / NormParts::kPart; ++i) {
            const NormDoubles d = NormParts::doubled(x, i) - NormParts::doubled(centre, i);
            reinterpret_cast<NormSumsAt*>(s.sums[0] + slot)[i] += d;
            reinterpret_cast<NormSumsAt*>(s.sums[1] + slot)[i] += d * d;
        }
    });
}

inline void normalize(const NormRows& given) {
    const NormRows s = given;
    each_vector(s.rows, s.channel, s.channels, [&](int64_t at, int64_t slot) {
        const NormValue d = norm_load(s.x, at) - norm_load(s.centre, slot);
        store<Type::float32, kWidth, false>(
            s.out, at, d * norm_load(s.scale, slot) + norm_load(s.shift, slot));
    });
}

inline void norm_gradients(const NormRows& given) {
    const NormRows s = given;
    each_vector(s.rows, s.channel, s.channels, [&](int64_t at, int64_t slot) {
        const NormValue g = norm_load(s.g, at);
        const NormValue d = norm_load(s.x, at) - norm_load(s.centre, slot);
        for (int i = 0; i < kWidth / NormParts::kPart; ++i) {
            const NormDoubles wide = NormParts::doubled(g, i);
            NormSumsAt* products = reinterpret_cast<NormSumsAt*>(s.sums[0] + slot) + i;
            *products = NormParts::sum(wide, NormParts::doubled(d, i), *products);
            reinterpret_cast<NormSumsAt*>(s.sums[1] + slot)[i] += wide;
        }
        store<Type::float32, kWidth, false>(s.out, at, g * norm_load(s.scale, slot));
    });
}

template <bool Scaled>
inline void add_normalized_rows(const NormRows& given) {
    const NormRows s = given;
    each_vector(s.rows, s.channel, s.channels, [&](int64_t at, int64_t slot) {
        const NormValue d = norm_load(s.x, at) - norm_load(s.centre, slot);
        const NormValue v = d * norm_load(s.scale, slot) + norm_load(s.shift, slot);
        NormValue g = norm_load(s.g, at);
        if constexpr (Scaled) g = g * norm_load(s.factor, slot);
        store<Type::float32, kWidth, false>(s.out, at, g + v);
    });
}

constexpr NormKernels kNormKernels{add_moments, normalize, norm_gradients,
                                   add_normalized_rows<false>, add_normalized_rows<true>};

}  // namespace
}  // namespace qgraph
