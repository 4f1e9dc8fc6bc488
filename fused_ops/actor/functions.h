// Activation functions in float32, with the same operations in the same order as
// qgraph/rl/actor/plain.py.

#pragma once

#include <initializer_list>

#include "actor/vectors.h"

namespace qgraph::actor {
namespace {

constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number

inline Vec held(Vec x, Vec low, Vec high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}

inline Vec power_of_two(Ints n) { return (Vec)(((Bits)n + 127u) << 23); }

inline Vec exp(Vec x) {
    x = held(x, all(-104.0f), all(89.0f));
    const Vec shifted = x * 1.4426950408889634f + kRounder;
    const Ints whole = (Ints)((Bits)shifted - (Bits)all(kRounder));
    const Vec n = shifted - kRounder;
    const Vec r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    Vec y = all(static_cast<float>(1.0 / 5040));
    for (const double factor : {1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0, 1.0}) {
        y = y * r + static_cast<float>(factor);
    }
    const Ints half = whole >> 1;
    return y * power_of_two(half) * power_of_two((Ints)((Bits)whole - (Bits)half));
}

inline Vec absolute(Vec x) { return (Vec)((Bits)x & 0x7fffffffu); }

inline Vec tanh(Vec x) {
    const Vec size = absolute(x), square = x * x;
    const Vec above = x * ((square + 105.0f) * square + 945.0f);
    const Vec near = above / ((15.0f * square + 420.0f) * square + 945.0f);
    const Vec far = 1.0f - 2.0f / (exp(held(size + size, all(0), all(40.0f))) + 1.0f);
    return size < 0.6f ? near : (x < 0.0f ? -far : far);
}

inline Vec erf(Vec x) {
    const Vec size = x < 0.0f ? -x : x;
    const Vec t = 1.0f / (size * 0.3275911f + 1.0f);
    Vec y = all(1.061405429f);
    for (const float factor : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) {
        y = y * t + factor;
    }
    const Vec above = 1.0f - (y * t) * exp(-(size * size));
    return x < 0.0f ? -above : above;
}

inline Vec sigmoid(Vec x) { return 1.0f / (exp(-x) + 1.0f); }

inline Vec softplus(Vec x) {
    const Vec e = exp(-absolute(x));
    const Vec s = e / (e + 2.0f), square = s * s;
    Vec y = all(static_cast<float>(1.0 / 15));
    for (const int odd : {13, 11, 9, 7, 5, 3, 1}) {
        y = y * square + static_cast<float>(1.0 / odd);
    }
    return (x < 0.0f ? all(0) : x) + (s + s) * y;
}

template <Activation A>
inline Vec activated(Vec x, float alpha) {
    switch (A) {
        case Activation::linear:
            return x;
        case Activation::relu:
            return all(0) > x ? all(0) : x;
        case Activation::leaky_relu:
            return x < 0.0f ? x * alpha : x;
        case Activation::elu:
            return x < 0.0f ? (exp(x) - 1.0f) * alpha : x;
        case Activation::tanh:
            return tanh(x);
        case Activation::sigmoid:
            return sigmoid(x);
        case Activation::softplus:
            return softplus(x);
        case Activation::swish:
            return x * sigmoid(x);
        case Activation::exp:
            return exp(x);
        case Activation::sign:
            return x > 0.0f ? all(1) : (x < 0.0f ? all(-1) : x);
        case Activation::erf:
            return erf(x);
    }
}

// Calls f with a type that has the activation as `value`.
template <Activation A>
struct Tag {
    static constexpr Activation value = A;
};
template <class F>
inline void with_activation(Activation activation, F f) {
    switch (activation) {
        case Activation::linear:
            return f(Tag<Activation::linear>{});
        case Activation::relu:
            return f(Tag<Activation::relu>{});
        case Activation::leaky_relu:
            return f(Tag<Activation::leaky_relu>{});
        case Activation::elu:
            return f(Tag<Activation::elu>{});
        case Activation::tanh:
            return f(Tag<Activation::tanh>{});
        case Activation::sigmoid:
            return f(Tag<Activation::sigmoid>{});
        case Activation::softplus:
            return f(Tag<Activation::softplus>{});
        case Activation::swish:
            return f(Tag<Activation::swish>{});
        case Activation::exp:
            return f(Tag<Activation::exp>{});
        case Activation::sign:
            return f(Tag<Activation::sign>{});
        case Activation::erf:
            return f(Tag<Activation::erf>{});
    }
}

}  // namespace
}  // namespace qgraph::actor
