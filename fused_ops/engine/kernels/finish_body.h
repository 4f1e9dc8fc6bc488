// What is done with sums before they are stored. Included once by each level, which has defined
// pack_bytes.

#pragma once

#include "engine/kernels/stages.h"
#include "engine/kernels/vectors.h"

namespace qgraph::engine::kernels {
namespace {

inline const int32_t* numbers(const Layer& layer, int64_t array, const Block& block) {
    return reinterpret_cast<const int32_t*>(layer.at(array)) + block.position;
}

// v / 2^shift rounded, given t = v + 2^(shift - 1) (t = v where shift is 0 or the rounding floor).
// `rest` has the bits that are shifted out; a tie leaves none in t.
template <Rounding rounding>
inline Ints rounded(Ints t, Ints shift, Ints rest, Ints keep) {
    const Ints q = t >> shift;
    if (rounding == Rounding::half_even) return (t & rest) == 0 ? q & keep : q;
    if (rounding == Rounding::half_away) return ((t & rest) == 0) & (q <= 0) ? q + keep : q;
    return q;
}

// A Step::round of a block; numbers that are the same for all channels stay in registers.
template <Rounding rounding, bool uniform>
class Round {
  public:
    Round(const Layer& layer, const Step& step, const Block& block)
        : a_(numbers(layer, step.a, block)),
          b_(numbers(layer, step.b, block)),
          c_(numbers(layer, step.c, block)),
          shift_(load<Ints>(a_)),
          rest_(load<Ints>(b_)),
          keep_(load<Ints>(c_)) {}

    Ints operator()(Ints t, int vector) const {
        if (uniform) return rounded<rounding>(t, shift_, rest_, keep_);
        const int64_t at = vector * kWide;
        return rounded<rounding>(t, load<Ints>(a_ + at), load<Ints>(b_ + at), load<Ints>(c_ + at));
    }

  private:
    const int32_t* a_;
    const int32_t* b_;
    const int32_t* c_;
    Ints shift_, rest_, keep_;
};

// Bytes of one row of a block of 4 registers.
inline void store_bytes(const Layer& layer, const Block& block, const Ints* v, char* y) {
    const char* low = layer.at(layer.finish.byte_low) + block.channel;
    const char* high = layer.at(layer.finish.byte_high) + block.channel;
    Bytes bytes;
    if (layer.finish.y == Code::u8) {
        bytes = pack_unsigned(v[0], v[1], v[2], v[3]);
        bytes = smaller(larger(bytes, load<Bytes>(low)), load<Bytes>(high));
    } else {
        const auto chars = (Chars)pack_signed(v[0], v[1], v[2], v[3]);
        bytes = (Bytes)smaller(larger(chars, load<Chars>(low)), load<Chars>(high));
    }
    if (block.channels == kRegister) {
        store(y, bytes);
    } else {
        store_part(y, bytes, block.channels);
    }
}

template <typename T>
inline void narrow(const int32_t* from, char* y, int64_t count) {
    T codes[4 * kWide];
    for (int i = 0; i < 4 * kWide; ++i) codes[i] = static_cast<T>(from[i]);
    std::memcpy(y, codes, static_cast<size_t>(count) * sizeof(T));
}

// One row of any block, of any type.
inline void store_row(const Layer& layer, const Block& block, const Ints* v, char* y) {
    if (block.vectors == 4 && size_of(layer.finish.y) == 1) return store_bytes(layer, block, v, y);
    const int32_t* low = numbers(layer, layer.finish.low, block);
    const int32_t* high = numbers(layer, layer.finish.high, block);
    int32_t row[4 * kWide] = {};
    for (int vector = 0; vector < block.vectors; ++vector) {
        const int64_t at = vector * kWide;
        const Ints codes = smaller(larger(v[vector], load<Ints>(low + at)), load<Ints>(high + at));
        for (int lane = 0; lane < kLanes; ++lane) {
            const auto* four = reinterpret_cast<const char*>(&codes) + 16 * lane;
            std::memcpy(row + 4 * (block.vectors * lane + vector), four, 16);
        }
    }
    switch (layer.finish.y) {
        case Code::u8:
        case Code::s8:
            return narrow<uint8_t>(row, y, block.channels);
        case Code::u16:
        case Code::s16:
            return narrow<uint16_t>(row, y, block.channels);
        default:
            return narrow<uint32_t>(row, y, block.channels);
    }
}

template <Rounding rounding, bool uniform>
void finish_chain(const Layer& layer, const Block& block, const int32_t* sums, int rows, char* y,
                  int64_t y_row) {
    const Finish& f = layer.finish;
    const bool two = f.chain == Finish::Chain::round_add_round;
    const Round<rounding, uniform> first(layer, f.steps[0], block);
    const Round<rounding, uniform> second(layer, f.steps[two ? 2 : 0], block);
    const int32_t* term = two ? numbers(layer, f.steps[1].a, block) : nullptr;
    const auto all = [&](auto vectors) {
        for (int row = 0; row < rows; ++row, sums += vectors * kWide, y += y_row) {
            Ints v[4] = {};
            for (int i = 0; i < vectors; ++i) v[i] = first(load<Ints>(sums + i * kWide), i);
            if (two) {
                for (int i = 0; i < vectors; ++i) {
                    v[i] = second(plus(v[i], load<Ints>(term + i * kWide)), i);
                }
            }
            store_row(layer, block, v, y);
        }
    };
    if (block.vectors == 4) return all(std::integral_constant<int, 4>());
    if (block.vectors == 2) return all(std::integral_constant<int, 2>());
    all(std::integral_constant<int, 1>());
}

Ints round_any(Rounding rounding, Ints t, Ints shift, Ints rest, Ints keep) {
    switch (rounding) {
        case Rounding::half_even:
            return rounded<Rounding::half_even>(t, shift, rest, keep);
        case Rounding::half_away:
            return rounded<Rounding::half_away>(t, shift, rest, keep);
        default:
            return rounded<Rounding::floor>(t, shift, rest, keep);
    }
}

Ints exact(Ints v, Ints shift, Rounding rounding) {
    for (int i = 0; i < kWide; ++i) {
        const int64_t q = round_shift(v[i], shift[i], rounding);
        v[i] = static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(q, INT32_MIN), INT32_MAX));
    }
    return v;
}

Ints run_step(const Layer& layer, const Step& step, const Block& block, int vector, Ints v) {
    const auto number = [&](int64_t array) {
        return load<Ints>(numbers(layer, array, block) + vector * kWide);
    };
    const Ints a = number(step.a);
    switch (step.kind) {
        case Step::Kind::add:
            return plus(v, a);
        case Step::Kind::round:
            return round_any(step.rounding, v, a, number(step.b), number(step.c));
        case Step::Kind::clip:
            return smaller(larger(v, a), number(step.b));
        case Step::Kind::left: {
            const Ints moved = (Ints)((Words)v << (Words)a);
            const Ints not_more = v > number(step.c) ? fill(INT32_MAX) : moved;
            return v < number(step.b) ? fill(INT32_MIN) : not_more;
        }
        default:
            return exact(v, a, step.rounding);
    }
}

void finish_any(const Layer& layer, const Block& block, const int32_t* sums, int rows, char* y,
                int64_t y_row) {
    for (int row = 0; row < rows; ++row, sums += block.vectors * kWide, y += y_row) {
        Ints v[4] = {};
        for (int i = 0; i < block.vectors; ++i) {
            v[i] = load<Ints>(sums + i * kWide);
            for (int step = 0; step < layer.finish.count; ++step) {
                v[i] = run_step(layer, layer.finish.steps[step], block, i, v[i]);
            }
        }
        store_row(layer, block, v, y);
    }
}

// Rows of sums of a block, to rows of y, which begin at y and are `y_row` bytes apart.
void finish_rows(const Layer& layer, const Block& block, const int32_t* sums, int rows, char* y,
                 int64_t y_row) {
    using Chain = Finish::Chain;
    const Finish& f = layer.finish;
    if (f.chain == Chain::any || f.chain == Chain::none) {
        return finish_any(layer, block, sums, rows, y, y_row);
    }
    const bool uniform = f.steps[0].uniform && (f.chain == Chain::round || f.steps[2].uniform);
    const auto by_rounding = [&](auto is_uniform) {
        constexpr bool same = decltype(is_uniform)::value;
        switch (f.steps[0].rounding) {
            case Rounding::half_even:
                return &finish_chain<Rounding::half_even, same>;
            case Rounding::half_away:
                return &finish_chain<Rounding::half_away, same>;
            default:
                return &finish_chain<Rounding::floor, same>;
        }
    };
    const auto chain = uniform ? by_rounding(std::true_type()) : by_rounding(std::false_type());
    chain(layer, block, sums, rows, y, y_row);
}

}  // namespace
}  // namespace qgraph::engine::kernels
