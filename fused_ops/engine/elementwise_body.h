// The loops of elementwise.h, compiled once for each instruction set. elementwise_<set>.cpp
// includes this, and its compiler flags select the set. Everything is private to that file and uses
// no inline function from elsewhere. Otherwise the linker might keep a copy that was compiled for
// another CPU.

#include <cstddef>

#include "engine/elementwise.h"

namespace qgraph::engine {
namespace {

// The ranges in a file may be wrong, so sums may overflow. They use unsigned integers, whose
// overflow is defined.
template <typename T>
struct Unsigned;
template <>
struct Unsigned<int32_t> {
    using Type = uint32_t;
};
template <>
struct Unsigned<int64_t> {
    using Type = uint64_t;
};
template <typename T>
using Bits = typename Unsigned<T>::Type;

template <typename T>
constexpr T highest_of = static_cast<T>(~Bits<T>{0} >> 1);

template <typename T>
T bounded(T value, T low, T high) {
    const T above = value < low ? low : value;
    return above > high ? high : above;
}

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

template <typename From, typename To>
void convert(const From* x, int64_t stride, To* y, int64_t count) {
    if (stride == 1) {
        for (int64_t i = 0; i < count; ++i) y[i] = static_cast<To>(x[i]);
    } else {
        for (int64_t i = 0; i < count; ++i) y[i] = static_cast<To>(x[i * stride]);
    }
}

void convert_any(const void* x, Storage from, int64_t stride, void* y, Storage to, int64_t count) {
    if (from == to && stride == 1) {
        __builtin_memcpy(y, x, static_cast<size_t>(count * size_of(from)));
        return;
    }
    with_type(from, [&](auto source) {
        with_type(to, [&](auto target) {
            convert(static_cast<const decltype(source)*>(x), stride,
                    static_cast<decltype(target)*>(y), count);
        });
    });
}

template <typename T>
constexpr Storage kOwn = sizeof(T) == 4 ? Storage::i32 : Storage::i64;

// Elements begin..begin+count of a strided operand, one run along the last dimension at a time.
template <typename T>
void gather(const Operand& operand, int64_t begin, int64_t count, T* tile) {
    const int last = operand.rank - 1;
    const int64_t inner = operand.sizes[last], step = operand.strides[last];
    const auto* data = static_cast<const char*>(operand.data);
    while (count > 0) {
        int64_t rest = begin, at = 0;
        for (int axis = last; axis >= 0; rest /= operand.sizes[axis--]) {
            at += rest % operand.sizes[axis] * operand.strides[axis];
        }
        const int64_t run = least(count, inner - begin % inner);
        convert_any(data + at * size_of(operand.storage), operand.storage, step, tile, kOwn<T>,
                    run);
        begin += run;
        count -= run;
        tile += run;
    }
}

// The elements of an operand that is not a single value: a pointer to them, or a copy in `tile`.
template <typename T>
const T* fetch(const Operand& operand, int64_t begin, int64_t count, T* tile) {
    switch (operand.spread) {
        case Operand::Spread::periodic:
            return static_cast<const T*>(operand.values) + begin % operand.period;
        case Operand::Spread::dense:
            convert_any(static_cast<const char*>(operand.data) + begin * size_of(operand.storage),
                        operand.storage, 1, tile, kOwn<T>, count);
            return tile;
        case Operand::Spread::strided:
            gather(operand, begin, count, tile);
            return tile;
        case Operand::Spread::one:
            break;
    }
    for (int64_t i = 0; i < count; ++i) tile[i] = static_cast<T>(operand.value);
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

// round_shift of qgraph/numerics.py. In chains of 32 bits, shifts are 0 to 30.
template <typename T, Rounding rounding>
T round_shift(T v, T shift) {
    constexpr T kMost = sizeof(T) == 8 ? 62 : 30;
    const T right = bounded<T>(shift, 0, kMost);
    const T left = bounded<T>(-shift, 0, kMost - 1);
    const T whole = v >> right;
    const T rest = v & static_cast<T>((Bits<T>{1} << right) - 1);
    const T half = right > 0 ? T{1} << (right - 1) : highest_of<T>;
    T up = 0;
    if (rounding == Rounding::half_even) up = rest + (whole & 1) > half;
    if (rounding == Rounding::half_up) up = rest >= half;
    if (rounding == Rounding::half_away) up = rest + (v >= 0) > half;
    if (rounding == Rounding::double_) up = rest + (rest & 1) + (v >= 0) > half;
    const T moved = whole + up;
    if (sizeof(T) == 4) return moved;
    const T limit = T{1} << (kMost - left);
    return static_cast<T>(static_cast<Bits<T>>(bounded<T>(moved, -limit, limit)) << left);
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
            return bounded<T>(round_shift<T, rounding>(v, shift), low, high);
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
        case Rounding::double_:
            return requantize<T, Rounding::double_>(micro, begin, count, x, other);
    }
}

template <typename T>
void absolute(int64_t count, T* x) {
    // Unsigned negation, because -x overflows for the lowest number of T, which a damaged file may
    // contain.
    for (int64_t i = 0; i < count; ++i) {
        x[i] = x[i] < 0 ? static_cast<T>(Bits<T>(0) - Bits<T>(x[i])) : x[i];
    }
}

template <typename T>
void look_up(const Micro& micro, int64_t count, T* x) {
    const auto* table = static_cast<const T*>(micro.table);
    const int64_t last = micro.table_size - 1;
    for (int64_t i = 0; i < count; ++i) {
        const auto wide = static_cast<uint64_t>(static_cast<int64_t>(x[i]));
        const auto at = static_cast<int64_t>(wide - static_cast<uint64_t>(micro.offset));
        x[i] = table[bounded<int64_t>(at, 0, last)];
    }
}

template <typename T>
void apply_binary(const Micro& micro, int64_t begin, int64_t count, T* x, T* other) {
    using B = Bits<T>;
    const auto each = [&](const auto& what) {
        with_operand(micro.operand, begin, count, x, other, what);
    };
    switch (as_binary(micro.op)) {
        case BinaryOp::add:
            return each([](T a, T b) { return static_cast<T>(B(a) + B(b)); });
        case BinaryOp::sub:
            if (micro.swapped) return each([](T a, T b) { return static_cast<T>(B(b) - B(a)); });
            return each([](T a, T b) { return static_cast<T>(B(a) - B(b)); });
        case BinaryOp::mul:
            return each([](T a, T b) { return static_cast<T>(B(a) * B(b)); });
        case BinaryOp::maximum:
            return each([](T a, T b) { return a > b ? a : b; });
        case BinaryOp::minimum:
            return each([](T a, T b) { return a < b ? a : b; });
    }
}

template <typename T>
void apply_unary(const Micro& micro, int64_t begin, int64_t count, T* x, T* other) {
    switch (as_unary(micro.op)) {
        case UnaryOp::clip:
            return;  // pointwise.cpp makes no such op
        case UnaryOp::requantize:
            return requantize(micro, begin, count, x, other);
        case UnaryOp::lookup:
            return look_up(micro, count, x);
        case UnaryOp::abs:
            return absolute(count, x);
    }
}

template <typename T>
void apply(const Micro& micro, int64_t begin, int64_t count, T* x, T* other) {
    if (family_of(micro.op) == Family::binary) return apply_binary(micro, begin, count, x, other);
    apply_unary(micro, begin, count, x, other);
}

template <typename T, typename X>
void sum_channels(const DepthwiseSums& s, int64_t begin, int64_t count, T* tile) {
    const auto* x = static_cast<const X*>(s.x);
    const auto* weights = static_cast<const T*>(s.weights);
    while (count > 0) {
        const int64_t pixel = begin / s.channels, channel = begin % s.channels;
        const int64_t run = least(count, s.channels - channel);
        const int64_t left = pixel % s.out_width * s.strides[1] - s.left;
        const int64_t top = pixel / s.out_width % s.out_height * s.strides[0] - s.top;
        const int64_t image = pixel / s.out_width / s.out_height;
        for (int64_t i = 0; i < run; ++i) tile[i] = 0;
        for (int64_t ky = 0; ky < s.kernel[0]; ++ky) {
            const int64_t iy = top + ky * s.dilations[0];
            if (iy < 0 || iy >= s.height) continue;
            for (int64_t kx = 0; kx < s.kernel[1]; ++kx) {
                const int64_t ix = left + kx * s.dilations[1];
                if (ix < 0 || ix >= s.width) continue;
                const X* from = x + ((image * s.height + iy) * s.width + ix) * s.channels + channel;
                const T* w = weights + (ky * s.kernel[1] + kx) * s.channels + channel;
                for (int64_t i = 0; i < run; ++i) {
                    const auto product =
                        static_cast<Bits<T>>(static_cast<T>(from[i])) * static_cast<Bits<T>>(w[i]);
                    tile[i] = static_cast<T>(static_cast<Bits<T>>(tile[i]) + product);
                }
            }
        }
        begin += run;
        count -= run;
        tile += run;
    }
}

template <typename T>
void run_tiles(const Chain& chain, int64_t begin, int64_t end) {
    T tile[kTile], other[kTile];
    for (; begin < end; begin += kTile) {
        const int64_t count = least(kTile, end - begin);
        const T* source = tile;
        if (chain.sums != nullptr) {
            with_type(chain.sums->storage, [&](auto type) {
                sum_channels<T, decltype(type)>(*chain.sums, begin, count, tile);
            });
        } else {
            source = fetch(chain.source, begin, count, tile);
        }
        if (source != tile) __builtin_memcpy(tile, source, static_cast<size_t>(count) * sizeof(T));
        for (int i = 0; i < chain.count; ++i) {
            apply(chain.micros[i], begin, count, tile, other);
        }
        convert_any(tile, kOwn<T>, 1, static_cast<char*>(chain.y) + begin * size_of(chain.storage),
                    chain.storage, count);
    }
}

void run_chain(const Chain& chain, int64_t begin, int64_t end) {
    if (chain.wide) {
        run_tiles<int64_t>(chain, begin, end);
    } else {
        run_tiles<int32_t>(chain, begin, end);
    }
}

}  // namespace
}  // namespace qgraph::engine
