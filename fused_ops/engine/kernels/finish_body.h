// The steps from sums to stored results. Each level includes this once, after it has defined how
// registers are packed.

#pragma once

#include "engine/kernels/stages.h"
#include "engine/kernels/vectors.h"

namespace qgraph::engine::kernels {
namespace {

inline const int32_t* numbers(const Layer& layer, int64_t array, const Block& block) {
    return reinterpret_cast<const int32_t*>(layer.at(array)) + block.position;
}

// Converts rows of sums of a block to rows of y, which begin at y and are `y_row` bytes apart.
struct Rows {
    const Layer& layer;
    const Block& block;
    const int32_t* sums;
    int count;
    char* y;
    int64_t y_row;
};

// -- stores -----------------------------------------------------------------------------------

enum class Store { unsigned_bytes, signed_bytes, any };

// Stores a row of bytes, clipped to the limits of their channels.
template <int vectors, Store kind>
class ByteStore {
  public:
    explicit ByteStore(const Rows& rows)
        : channels_(rows.block.channels),
          low_(load<Bytes>(rows.layer.at(rows.layer.finish.byte_low) + rows.block.channel)),
          high_(load<Bytes>(rows.layer.at(rows.layer.finish.byte_high) + rows.block.channel)) {}

    void operator()(char* y, const Shorts* v) const {
        Bytes bytes;
        if (kind == Store::unsigned_bytes) {
            bytes = in_order<vectors>(pack_unsigned(v[0], v[vectors == 4]));
            bytes = smaller(larger(bytes, low_), high_);
        } else {
            const auto chars = (Chars)in_order<vectors>(pack_signed(v[0], v[vectors == 4]));
            bytes = (Bytes)smaller(larger(chars, (Chars)low_), (Chars)high_);
        }
        constexpr int kBytes = vectors * kWide;
        if (channels_ == kBytes) {
            std::memcpy(y, &bytes, kBytes);
        } else {
            store_part(y, bytes, channels_);
        }
    }

    void operator()(char* y, const Ints* v) const {
        const Shorts shorts[2] = {pack_words(v[0], v[vectors > 1]),
                                  pack_words(v[vectors == 4 ? 2 : 0], v[vectors == 4 ? 3 : 0])};
        (*this)(y, shorts);
    }

  private:
    int64_t channels_;
    Bytes low_, high_;
};

template <typename T>
inline void narrow(const int32_t* from, char* y, int64_t count) {
    T codes[4 * kWide];
    for (int i = 0; i < 4 * kWide; ++i) codes[i] = static_cast<T>(from[i]);
    std::memcpy(y, codes, static_cast<size_t>(count) * sizeof(T));
}

// Stores a row of any type.
template <int vectors>
class AnyStore {
  public:
    explicit AnyStore(const Rows& rows)
        : type_(rows.layer.finish.y),
          channels_(rows.block.channels),
          low_(numbers(rows.layer, rows.layer.finish.low, rows.block)),
          high_(numbers(rows.layer, rows.layer.finish.high, rows.block)) {}

    void operator()(char* y, const Ints* v) const {
        int32_t row[4 * kWide] = {};
        for (int i = 0; i < vectors; ++i) {
            const Ints least = load<Ints>(low_ + i * kWide);
            const Ints most = load<Ints>(high_ + i * kWide);
            const Ints codes = smaller(larger(v[i], least), most);
            for (int lane = 0; lane < kLanes; ++lane) {
                const auto* four = reinterpret_cast<const char*>(&codes) + 16 * lane;
                std::memcpy(row + 4 * (vectors * lane + i), four, 16);
            }
        }
        switch (size_of(type_)) {
            case 1:
                return narrow<uint8_t>(row, y, channels_);
            case 2:
                return narrow<uint16_t>(row, y, channels_);
            default:
                return narrow<uint32_t>(row, y, channels_);
        }
    }

  private:
    Code type_;
    int64_t channels_;
    const int32_t* low_;
    const int32_t* high_;
};

template <int vectors, Store kind>
using StoreOf = std::conditional_t<kind == Store::any, AnyStore<vectors>, ByteStore<vectors, kind>>;

// -- chains with a special loop ---------------------------------------------------------------

// v / 2^shift rounded, given t = v + 2^(shift - 1) (t = v if shift is 0 or the rounding is floor).
// t + 1 does not overflow. `rest` is the mask of the bits that are shifted out: they are 0 in t for
// a tie. `one` is 1, or 0 if shift is 0.
template <Rounding rounding>
inline Ints rounded(Ints t, Ints shift, Ints rest, Ints one) {
    const Ints q = t >> shift;
    if (rounding == Rounding::half_even) return clear_where_none(q, one, t, rest);
    if (rounding == Rounding::half_away) return q - (((t & rest) == 0) & (q <= 0) & one);
    if (rounding == Rounding::double_) {
        // If more than one bit is shifted out, bit 0 of t is bit 0 of v; if exactly one is, q gives
        // it.
        const Ints more = (rest >> 1) & one;
        const Ints even = t + (t & more);
        return (even >> shift) - (((even & rest) == 0) & (even >> shift <= 0) & more);
    }
    return q;
}

// A step that rounds. Numbers that are the same for all channels stay in registers.
template <Rounding rounding, bool uniform>
class Round {
  public:
    Round(const Rows& rows, const Step& step)
        : a_(numbers(rows.layer, step.a, rows.block)),
          b_(numbers(rows.layer, step.b, rows.block)),
          c_(numbers(rows.layer, step.c, rows.block)),
          shift_(load<Ints>(a_)),
          rest_(load<Ints>(b_)),
          one_(load<Ints>(c_)) {}

    Ints operator()(Ints t, int vector) const {
        if (uniform) return rounded<rounding>(t, shift_, rest_, one_);
        const int64_t at = vector * kWide;
        return rounded<rounding>(t, load<Ints>(a_ + at), load<Ints>(b_ + at), load<Ints>(c_ + at));
    }

  private:
    const int32_t* a_;
    const int32_t* b_;
    const int32_t* c_;
    Ints shift_, rest_, one_;
};

// The second of two roundings, in 16 bits.
template <Rounding rounding, int vectors>
class ShortRound {
  public:
    ShortRound(const Rows& rows, const Step& add, const Step& round)
        : shift_(*numbers(rows.layer, round.a, rows.block)),
          rest_(Shorts{} + static_cast<int16_t>(*numbers(rows.layer, round.b, rows.block))),
          one_(Shorts{} + static_cast<int16_t>(*numbers(rows.layer, round.c, rows.block))) {
        const int32_t* term = numbers(rows.layer, add.a, rows.block);
        const auto at = [&](int i) { return load<Ints>(term + i * kWide); };
        terms_[0] = pack_words(at(0), at(vectors > 1));
        terms_[1] = pack_words(at(vectors == 4 ? 2 : 0), at(vectors == 4 ? 3 : 0));
    }

    Shorts operator()(Shorts z, int i) const {
        const Shorts t = add_saturated(z, terms_[i]);
        const Shorts q = shift_right(t, shift_);
        if (rounding == Rounding::half_even) return clear_where_none(q, one_, t, rest_);
        if (rounding == Rounding::half_away) return q - (((t & rest_) == 0) & (q <= 0) & one_);
        return q;
    }

  private:
    int shift_;
    Shorts rest_, one_;
    Shorts terms_[2];
};

template <Rounding rounding, bool uniform, int vectors, Store kind>
void finish_once(const Rows& rows) {
    const Round<rounding, uniform> round(rows, rows.layer.finish.steps[0]);
    const StoreOf<vectors, kind> store(rows);
    const int32_t* sums = rows.sums;
    const int64_t y_row = rows.y_row;
    char* y = rows.y;
    for (int count = rows.count; count > 0; --count, sums += vectors * kWide, y += y_row) {
        Ints v[vectors];
        for (int i = 0; i < vectors; ++i) v[i] = round(load<Ints>(sums + i * kWide), i);
        store(y, v);
    }
}

template <Rounding rounding, bool uniform, int vectors, Store kind>
void finish_left(const Rows& rows) {
    const Finish& f = rows.layer.finish;
    const int32_t* left = numbers(rows.layer, f.steps[0].a, rows.block);
    const int32_t* term = numbers(rows.layer, f.steps[1].a, rows.block);
    const Round<rounding, uniform> round(rows, f.steps[2]);
    const StoreOf<vectors, kind> store(rows);
    const int32_t* sums = rows.sums;
    const int64_t y_row = rows.y_row;
    char* y = rows.y;
    for (int count = rows.count; count > 0; --count, sums += vectors * kWide, y += y_row) {
        Ints v[vectors];
        for (int i = 0; i < vectors; ++i) {
            const int at = i * kWide;
            v[i] = (Ints)(load<Words>(sums + at) << load<Words>(left + at));
            v[i] = round(plus(v[i], load<Ints>(term + at)), i);
        }
        store(y, v);
    }
}

template <Rounding rounding, bool uniform, int vectors, Store kind>
void finish_twice(const Rows& rows) {
    const Finish& f = rows.layer.finish;
    const Round<rounding, uniform> first(rows, f.steps[0]);
    const Round<rounding, uniform> second(rows, f.steps[2]);
    const int32_t* term = numbers(rows.layer, f.steps[1].a, rows.block);
    const StoreOf<vectors, kind> store(rows);
    const int32_t* sums = rows.sums;
    const int64_t y_row = rows.y_row;
    char* y = rows.y;
    for (int count = rows.count; count > 0; --count, sums += vectors * kWide, y += y_row) {
        Ints v[vectors];
        for (int i = 0; i < vectors; ++i) {
            v[i] = first(load<Ints>(sums + i * kWide), i);
            v[i] = second(plus(v[i], load<Ints>(term + i * kWide)), i);
        }
        store(y, v);
    }
}

template <Rounding rounding, bool uniform, int vectors, Store kind>
void finish_twice_short(const Rows& rows) {
    const Finish& f = rows.layer.finish;
    const Round<rounding, uniform> first(rows, f.steps[0]);
    const ShortRound<rounding, vectors> second(rows, f.steps[1], f.steps[2]);
    const ByteStore<vectors, kind> store(rows);
    const int32_t* sums = rows.sums;
    const int64_t y_row = rows.y_row;
    char* y = rows.y;
    for (int count = rows.count; count > 0; --count, sums += vectors * kWide, y += y_row) {
        Ints v[4];
        for (int i = 0; i < vectors; ++i) v[i] = first(load<Ints>(sums + i * kWide), i);
        Shorts shorts[2] = {second(pack_words(v[0], v[vectors > 1]), 0)};
        if (vectors == 4) shorts[1] = second(pack_words(v[2], v[3]), 1);
        store(y, shorts);
    }
}

// -- all other chains -------------------------------------------------------------------------

Ints round_any(Rounding rounding, Ints t, Ints shift, Ints rest, Ints one) {
    switch (rounding) {
        case Rounding::half_even:
            return rounded<Rounding::half_even>(t, shift, rest, one);
        case Rounding::half_away:
            return rounded<Rounding::half_away>(t, shift, rest, one);
        case Rounding::double_:
            return rounded<Rounding::double_>(t, shift, rest, one);
        case Rounding::half_up:
        case Rounding::floor:
            break;
    }
    return rounded<Rounding::floor>(t, shift, rest, one);
}

Ints exact(Ints v, Ints shift, Rounding rounding) {
    for (int i = 0; i < kWide; ++i) {
        const int64_t q = round_shift(v[i], shift[i], rounding);
        v[i] = static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(q, INT32_MIN), INT32_MAX));
    }
    return v;
}

// One step of a row.
template <int vectors>
void run_step(const Rows& rows, const Step& step, Ints* v) {
    const auto number = [&](int64_t array, int i) {
        return load<Ints>(numbers(rows.layer, array, rows.block) + i * kWide);
    };
    const auto all = [&](auto&& change) {
        for (int i = 0; i < vectors; ++i) v[i] = change(v[i], number(step.a, i), i);
    };
    switch (step.kind) {
        case Step::Kind::add:
            return all([](Ints t, Ints term, int) { return plus(t, term); });
        case Step::Kind::round:
            return all([&](Ints t, Ints shift, int i) {
                return round_any(step.rounding, t, shift, number(step.b, i), number(step.c, i));
            });
        case Step::Kind::clip:
            return all([&](Ints t, Ints low, int i) {
                return smaller(larger(t, low), number(step.b, i));
            });
        case Step::Kind::left:
            return all([&](Ints t, Ints shift, int i) {
                const Ints moved = (Ints)((Words)t << (Words)shift);
                const Ints not_more = t > number(step.c, i) ? fill(INT32_MAX) : moved;
                return t < number(step.b, i) ? fill(INT32_MIN) : not_more;
            });
        case Step::Kind::exact:
            return all([&](Ints t, Ints shift, int) { return exact(t, shift, step.rounding); });
    }
}

template <int vectors, Store kind>
void finish_any(const Rows& rows) {
    const Finish& f = rows.layer.finish;
    const StoreOf<vectors, kind> store(rows);
    for (int row = 0; row < rows.count; ++row) {
        Ints v[vectors];
        for (int i = 0; i < vectors; ++i) {
            v[i] = load<Ints>(rows.sums + (row * vectors + i) * kWide);
        }
        for (int step = 0; step < f.count; ++step) run_step<vectors>(rows, f.steps[step], v);
        store(rows.y + row * rows.y_row, v);
    }
}

// -- selection of the loop --------------------------------------------------------------------

using FinishRows = void (*)(const Rows&);

template <Rounding rounding, bool uniform, int vectors, Store kind>
FinishRows chain_of(Finish::Chain chain) {
    using Chain = Finish::Chain;
    if (chain == Chain::round) return &finish_once<rounding, uniform, vectors, kind>;
    if (chain == Chain::left_round) return &finish_left<rounding, uniform, vectors, kind>;
    if constexpr (rounding != Rounding::double_) {
        if (chain == Chain::twice_short) {
            return &finish_twice_short<rounding, uniform, vectors, kind>;
        }
    }
    return &finish_twice<rounding, uniform, vectors, kind>;
}

template <Rounding rounding, int vectors, Store kind>
FinishRows by_uniform(const Finish& f) {
    using Chain = Finish::Chain;
    bool uniform = f.steps[f.chain == Chain::left_round ? 2 : 0].uniform;
    if (f.chain == Chain::twice) uniform &= f.steps[2].uniform;
    return uniform ? chain_of<rounding, true, vectors, kind>(f.chain)
                   : chain_of<rounding, false, vectors, kind>(f.chain);
}

template <int vectors, Store kind>
FinishRows by_chain(const Finish& f) {
    using Chain = Finish::Chain;
    if constexpr (kind != Store::any) {  // the others are rare
        if (f.chain == Chain::any) return &finish_any<vectors, kind>;
        switch (f.steps[f.count - 1].rounding) {  // all steps have the same rounding
            case Rounding::half_even:
                return by_uniform<Rounding::half_even, vectors, kind>(f);
            case Rounding::half_away:
                return by_uniform<Rounding::half_away, vectors, kind>(f);
            case Rounding::double_:
                return by_uniform<Rounding::double_, vectors, kind>(f);
            case Rounding::half_up:
            case Rounding::floor:
                return by_uniform<Rounding::floor, vectors, kind>(f);
        }
    }
    return &finish_any<vectors, kind>;
}

template <int vectors>
FinishRows by_store(const Finish& f) {
    if (f.y == Code::u8) return by_chain<vectors, Store::unsigned_bytes>(f);
    if (f.y == Code::s8) return by_chain<vectors, Store::signed_bytes>(f);
    return by_chain<vectors, Store::any>(f);
}

FinishRows finish_of(const Finish& f, const Block& block) {
    if (block.vectors == 4) return by_store<4>(f);
    if (block.vectors == 2) return by_store<2>(f);
    return by_store<1>(f);
}

}  // namespace
}  // namespace qgraph::engine::kernels
