#include "engine/elementwise.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace qgraph::engine {
namespace {

// Files may lie about ranges: overflow has to be harmless, so sums are taken without signs.
template <typename T>
using Bits = std::make_unsigned_t<T>;

template <typename From, typename To>
void convert(const From* x, int64_t stride, To* y, int64_t count) {
    if (stride == 1) {
        for (int64_t i = 0; i < count; ++i) y[i] = static_cast<To>(x[i]);
    } else {
        for (int64_t i = 0; i < count; ++i) y[i] = static_cast<To>(x[i * stride]);
    }
}

template <typename T>
constexpr Storage kOwn = std::is_same_v<T, int32_t> ? Storage::i32 : Storage::i64;

// Elements begin..begin+count of a strided operand, a run along the last dimension at a time.
template <typename T>
void gather(const Operand& operand, int64_t begin, int64_t count, T* tile) {
    const size_t rank = operand.sizes.size();
    const int64_t inner = operand.sizes[rank - 1], step = operand.strides[rank - 1];
    const auto* data = static_cast<const char*>(operand.data);
    while (count > 0) {
        int64_t rest = begin, at = 0;
        for (size_t axis = rank; axis-- > 0; rest /= operand.sizes[axis]) {
            at += rest % operand.sizes[axis] * operand.strides[axis];
        }
        const int64_t run = std::min(count, inner - begin % inner);
        engine::convert(data + at * size_of(operand.storage), operand.storage, step, tile, kOwn<T>,
                        run);
        begin += run;
        count -= run;
        tile += run;
    }
}

// Elements of an operand that are not one for all: where they are, or copied to `tile`.
template <typename T>
const T* fetch(const Operand& operand, int64_t begin, int64_t count, T* tile) {
    switch (operand.spread) {
        case Operand::Spread::periodic:
            return reinterpret_cast<const T*>(operand.repeated.data()) + begin % operand.period;
        case Operand::Spread::dense:
            engine::convert(
                static_cast<const char*>(operand.data) + begin * size_of(operand.storage),
                operand.storage, 1, tile, kOwn<T>, count);
            return tile;
        case Operand::Spread::strided:
            gather(operand, begin, count, tile);
            return tile;
        case Operand::Spread::one:
            break;
    }
    std::fill(tile, tile + count, static_cast<T>(operand.value));
    return tile;
}

template <typename T, typename What>
void with_operand(const Operand& operand, int64_t begin, int64_t count, T* x, T* other,
                  const What& what) {
    if (operand.spread == Operand::Spread::one) {
        const T value = static_cast<T>(operand.value);
        for (int64_t i = 0; i < count; ++i) x[i] = what(x[i], value);
    } else {
        const T* values = fetch(operand, begin, count, other);
        for (int64_t i = 0; i < count; ++i) x[i] = what(x[i], values[i]);
    }
}

// round_shift of qgraph/numerics.py. Chains of 32 bits only have shifts of 0..30.
template <typename T, Rounding rounding>
T round_shift(T v, T shift) {
    constexpr T kMost = sizeof(T) == 8 ? 62 : 30;
    const T right = std::clamp<T>(shift, 0, kMost);
    const T left = std::clamp<T>(-shift, 0, kMost - 1);
    const T whole = v >> right;
    const T rest = v & static_cast<T>((Bits<T>{1} << right) - 1);
    const T half = right > 0 ? T{1} << (right - 1) : std::numeric_limits<T>::max();
    T up = 0;
    if (rounding == Rounding::half_even) up = rest + (whole & 1) > half;
    if (rounding == Rounding::half_up) up = rest >= half;
    if (rounding == Rounding::half_away) up = rest + (v >= 0) > half;
    const T moved = whole + up;
    if (sizeof(T) == 4) return moved;
    const T limit = T{1} << (kMost - left);
    return static_cast<T>(static_cast<Bits<T>>(std::clamp<T>(moved, -limit, limit)) << left);
}

template <typename T, Rounding rounding>
void requantize(const Micro& micro, int64_t begin, int64_t count, T* x, T* other) {
    const T low = static_cast<T>(micro.low), high = static_cast<T>(micro.high);
    const auto mask = static_cast<Bits<T>>(micro.high) - static_cast<Bits<T>>(micro.low);
    if (micro.wrap) {
        with_operand(micro.operand, begin, count, x, other, [=](T v, T shift) {
            const auto moved = static_cast<Bits<T>>(round_shift<T, rounding>(v, shift));
            const auto first = static_cast<Bits<T>>(low);
            return static_cast<T>(((moved - first) & mask) + first);
        });
    } else {
        with_operand(micro.operand, begin, count, x, other, [=](T v, T shift) {
            return std::clamp(round_shift<T, rounding>(v, shift), low, high);
        });
    }
}

template <typename T>
void requantize(const Micro& micro, int64_t begin, int64_t count, T* x, T* other) {
    switch (micro.rounding) {
        case Rounding::half_even:
            return requantize<T, Rounding::half_even>(micro, begin, count, x, other);
        case Rounding::half_up:
            return requantize<T, Rounding::half_up>(micro, begin, count, x, other);
        case Rounding::half_away:
            return requantize<T, Rounding::half_away>(micro, begin, count, x, other);
        case Rounding::floor:
            return requantize<T, Rounding::floor>(micro, begin, count, x, other);
    }
}

template <typename T>
void look_up(const Micro& micro, int64_t count, T* x) {
    const auto* table = reinterpret_cast<const T*>(micro.table.data());
    const int64_t last = micro.table_size - 1;
    for (int64_t i = 0; i < count; ++i) {
        const auto wide = static_cast<uint64_t>(static_cast<int64_t>(x[i]));
        const auto at = static_cast<int64_t>(wide - static_cast<uint64_t>(micro.offset));
        x[i] = table[std::clamp<int64_t>(at, 0, last)];
    }
}

template <typename T>
void apply(const Micro& micro, int64_t begin, int64_t count, T* x, T* other) {
    using B = Bits<T>;
    const auto each = [&](const auto& what) {
        with_operand(micro.operand, begin, count, x, other, what);
    };
    switch (micro.kind) {
        case Micro::Kind::add:
            return each([](T a, T b) { return static_cast<T>(B(a) + B(b)); });
        case Micro::Kind::sub:
            return each([](T a, T b) { return static_cast<T>(B(a) - B(b)); });
        case Micro::Kind::sub_from:
            return each([](T a, T b) { return static_cast<T>(B(b) - B(a)); });
        case Micro::Kind::mul:
            return each([](T a, T b) { return static_cast<T>(B(a) * B(b)); });
        case Micro::Kind::maximum:
            return each([](T a, T b) { return a > b ? a : b; });
        case Micro::Kind::minimum:
            return each([](T a, T b) { return a < b ? a : b; });
        case Micro::Kind::requantize:
            return requantize(micro, begin, count, x, other);
        case Micro::Kind::lookup:
            return look_up(micro, count, x);
    }
}

template <typename T>
void run_tiles(const Chain& chain, int64_t begin, int64_t end) {
    T tile[kTile], other[kTile];
    for (; begin < end; begin += kTile) {
        const int64_t count = std::min(kTile, end - begin);
        const T* source = fetch(chain.source, begin, count, tile);
        if (source != tile) std::copy(source, source + count, tile);
        for (const Micro& micro : chain.micros) apply(micro, begin, count, tile, other);
        convert(tile, kOwn<T>, 1, static_cast<char*>(chain.y) + begin * size_of(chain.storage),
                chain.storage, count);
    }
}

}  // namespace

void convert(const void* x, Storage from, int64_t stride, void* y, Storage to, int64_t count) {
    if (from == to && stride == 1) {
        std::memcpy(y, x, static_cast<size_t>(count * size_of(from)));
        return;
    }
    with_type(from, [&](auto source) {
        with_type(to, [&](auto target) {
            convert(static_cast<const decltype(source)*>(x), stride,
                    static_cast<decltype(target)*>(y), count);
        });
    });
}

void run(const Chain& chain, int64_t begin, int64_t end) {
    if (chain.wide) {
        run_tiles<int64_t>(chain, begin, end);
    } else {
        run_tiles<int32_t>(chain, begin, end);
    }
}

std::vector<char> typed(const std::vector<int64_t>& values, bool wide) {
    const Storage own = wide ? Storage::i64 : Storage::i32;
    std::vector<int64_t> held(values);
    for (int64_t& value : held) value = std::clamp(value, lowest(own), highest(own));
    std::vector<char> made(held.size() * static_cast<size_t>(size_of(own)));
    convert(held.data(), Storage::i64, 1, made.data(), own, static_cast<int64_t>(held.size()));
    return made;
}

Operand repeated(const std::vector<int64_t>& values, bool wide) {
    Operand operand;
    if (values.size() == 1) {
        operand.value = wide ? values[0] : std::clamp<int64_t>(values[0], INT32_MIN, INT32_MAX);
        return operand;
    }
    operand.spread = Operand::Spread::periodic;
    operand.period = static_cast<int64_t>(values.size());
    std::vector<int64_t> longer(values);
    for (int64_t i = 0; i < kTile; ++i) longer.push_back(values[i % values.size()]);
    operand.repeated = typed(longer, wide);
    return operand;
}

std::vector<int64_t> widened(const void* x, Storage storage, int64_t count) {
    std::vector<int64_t> made(static_cast<size_t>(count));
    convert(x, storage, 1, made.data(), Storage::i64, count);
    return made;
}

}  // namespace qgraph::engine
