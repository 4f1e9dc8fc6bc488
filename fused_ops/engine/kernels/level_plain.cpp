#include "engine/kernels/layer.h"

namespace qgraph::engine::kernels {
namespace {
constexpr int kLanes = 1;
constexpr int kRows = 4;
constexpr Products kProducts = kAdjacentPairs;
}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/unmasked.h"

namespace qgraph::engine::kernels {
namespace {

inline Ints times(Ints a, Ints b) { return (Ints)((Words)a * (Words)b); }

inline Ints dot_words(Ints sums, Ints codes, Ints weights) {
    const auto low = [](Ints v) { return (Ints)((Words)v << 16) >> 16; };
    return plus(plus(sums, times(low(codes), low(weights))), times(codes >> 16, weights >> 16));
}

// The sum of two neighbouring words.
inline Ints add_pairs(Shorts v) {
    const auto pairs = (Ints)v;
    return plus((Ints)((Words)pairs << 16) >> 16, pairs >> 16);
}

// The product of an unsigned and a signed byte fits into a word.
inline Shorts multiply_even(Ints codes, Ints weights) {
    return (Shorts)(codes & 0x00ff00ff) * ((Shorts)((Words)weights << 8) >> 8);
}
inline Shorts multiply_odd(Ints codes, Ints weights) {
    return (Shorts)((Words)codes >> 8 & 0x00ff00ff) * ((Shorts)weights >> 8);
}

inline Ints dot_bytes(Ints sums, Ints codes, Ints weights) {
    sums = plus(sums, add_pairs(multiply_even(codes, weights)));
    return plus(sums, add_pairs(multiply_odd(codes, weights)));
}

// The sum of the two products must fit into a word.
inline Shorts multiply_pairs(Ints codes, Ints weights) {
    return multiply_even(codes, weights) + multiply_odd(codes, weights);
}

inline int32_t saturated(int32_t v, int32_t low, int32_t high) {
    return std::min(std::max(v, low), high);
}

inline Shorts pack_words(Ints a, Ints b) {
    Shorts packed{};
    for (int i = 0; i < 8; ++i) {
        packed[i] = static_cast<int16_t>(saturated(i < 4 ? a[i] : b[i - 4], INT16_MIN, INT16_MAX));
    }
    return packed;
}
inline Bytes pack_bytes(Shorts a, Shorts b, int32_t low, int32_t high) {
    Bytes packed{};
    for (int i = 0; i < 16; ++i) {
        packed[i] = static_cast<uint8_t>(saturated(i < 8 ? a[i] : b[i - 8], low, high));
    }
    return packed;
}
inline Bytes pack_unsigned(Shorts a, Shorts b) { return pack_bytes(a, b, 0, 255); }
inline Bytes pack_signed(Shorts a, Shorts b) { return pack_bytes(a, b, -128, 127); }

inline Shorts add_saturated(Shorts a, Shorts b) {
    for (int i = 0; i < 8; ++i) {
        a[i] = static_cast<int16_t>(saturated(a[i] + b[i], INT16_MIN, INT16_MAX));
    }
    return a;
}
inline Shorts shift_right(Shorts v, int shift) { return v >> static_cast<int16_t>(shift); }

template <int vectors>
inline Bytes in_order(Bytes bytes) {
    return bytes;  // there is one lane
}

// Sum i of result j gets byte 4 * j + i of each of the four inputs.
inline void interleave(const Bytes* four, Ints* out) {
    for (int sum = 0; sum < kRegister; ++sum) {
        const uint8_t bytes[4] = {four[0][sum], four[1][sum], four[2][sum], four[3][sum]};
        out[sum / 4][sum % 4] = load<int32_t>(bytes);
    }
}

}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/adjacent_body.h"
#include "engine/kernels/byte_pairs_body.h"
#include "engine/kernels/level_body.h"

namespace qgraph::engine::kernels {

const Kernels* plain_kernels() { return &kKernels; }

}  // namespace qgraph::engine::kernels
