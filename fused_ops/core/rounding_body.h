// The kernel of rounding, written with the vectors of one instruction set.
#pragma once

#include "core/rounding_tile.h"
#include "core/unrolled.h"
#include "core/vectors.h"

namespace qgraph {
namespace {

// A product and a sum, each rounded, as in numpy: the result is the same on any CPU.
void add_products(const RoundingTile& tile) {
    const IeeeArithmetic ieee;
    constexpr int kDoubles = kWidth / 2;
    constexpr int kCount = kRoundingColumns / kDoubles;
    typedef Vector<kDoubles>::UnalignedDoubles Place;
    typedef Vector<kDoubles>::Doubles Doubles;
    for (int64_t row = 0; row < tile.rows; ++row) {
        const double* factors = tile.factors + row * tile.stride;
        Place* place = reinterpret_cast<Place*>(tile.sums + row * kRoundingColumns);
        Doubles sums[kCount];
        unrolled<kCount>([&](auto v) { sums[v] = place[v]; });
        for (int64_t i = 0; i < tile.count; ++i) {
            const Doubles factor = Doubles{} + factors[tile.which[i]];
            const Place* panel = reinterpret_cast<const Place*>(tile.panel + i * kRoundingColumns);
            unrolled<kCount>([&](auto v) { sums[v] += factor * panel[v]; });
        }
        unrolled<kCount>([&](auto v) { place[v] = sums[v]; });
    }
}

}  // namespace
}  // namespace qgraph
