#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/kernels/kernels.h"

namespace qgraph::engine::kernels {

// qgraph.numerics.round_shift; left shifts are saturated to [-2^62, 2^62].
inline int64_t round_shift(int64_t v, int shift, Rounding rounding) {
    if (shift <= 0) {
        const int left = std::min(-shift, 61);
        const int64_t limit = int64_t{1} << (62 - left);
        return std::min(std::max(v, -limit), limit) * (int64_t{1} << left);
    }
    shift = std::min(shift, 62);
    const int64_t whole = v >> shift;
    const int64_t half = int64_t{1} << (shift - 1);
    const int64_t rest = v & (half * 2 - 1);
    switch (rounding) {
        case Rounding::half_even:
            return whole + (rest + (whole & 1) > half);
        case Rounding::half_up:
            return whole + (rest >= half);
        case Rounding::half_away:
            return whole + (rest + (v >= 0) > half);
        case Rounding::floor:
            return whole;
        case Rounding::double_:
            break;
    }
    return whole + (rest + (rest & 1) + (v >= 0) > half);
}

inline int64_t apply(const Stage& stage, int64_t v, int64_t channel) {
    if (stage.kind == Stage::Kind::add) return v + stage.term[channel];
    if (stage.kind == Stage::Kind::requantize) {
        v = round_shift(v, stage.shift[channel], stage.rounding);
    }
    return std::min<int64_t>(std::max<int64_t>(v, stage.low[channel]), stage.high[channel]);
}

inline int64_t low_of(Code code) {
    switch (code) {
        case Code::s8:
            return INT8_MIN;
        case Code::s16:
            return INT16_MIN;
        case Code::s32:
            return INT32_MIN;
        case Code::u8:
        case Code::u16:
            break;
    }
    return 0;
}

inline int64_t high_of(Code code) {
    switch (code) {
        case Code::u8:
            return UINT8_MAX;
        case Code::s8:
            return INT8_MAX;
        case Code::u16:
            return UINT16_MAX;
        case Code::s16:
            return INT16_MAX;
        case Code::s32:
            break;
    }
    return INT32_MAX;
}

}  // namespace qgraph::engine::kernels
