#include "engine/kernels/layer.h"

namespace qgraph::engine::kernels {
namespace {
constexpr int kLanes = 1;
constexpr int kRows = 4;
}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/vectors.h"

namespace qgraph::engine::kernels {
namespace {

inline Ints times(Ints a, Ints b) { return (Ints)((Words)a * (Words)b); }

inline Ints dot_words(Ints sums, Ints codes, Ints weights) {
    const auto low = [](Ints v) { return (Ints)((Words)v << 16) >> 16; };
    return plus(plus(sums, times(low(codes), low(weights))), times(codes >> 16, weights >> 16));
}

inline Ints dot_bytes(Ints sums, Ints codes, Ints weights) {
    for (int i = 0; i < 4; ++i) {
        const auto code = (Ints)((Words)codes >> (8 * i)) & 255;
        const Ints weight = (Ints)((Words)weights << (24 - 8 * i)) >> 24;
        sums = plus(sums, times(code, weight));
    }
    return sums;
}

inline Bytes pack(Ints a, Ints b, Ints c, Ints d, int32_t low, int32_t high) {
    const Ints all[4] = {a, b, c, d};
    Bytes bytes{};
    for (int i = 0; i < kRegister; ++i) {
        const int32_t v = all[i / 4][i % 4];
        bytes[i] = static_cast<uint8_t>(std::min(std::max(v, low), high));
    }
    return bytes;
}

inline Bytes pack_unsigned(Ints a, Ints b, Ints c, Ints d) { return pack(a, b, c, d, 0, 255); }
inline Bytes pack_signed(Ints a, Ints b, Ints c, Ints d) { return pack(a, b, c, d, -128, 127); }

inline Bytes load_part(const char* from, int64_t count) {
    Bytes bytes{};
    std::memcpy(&bytes, from, static_cast<size_t>(count));
    return bytes;
}

inline void store_part(char* to, Bytes bytes, int64_t count) {
    std::memcpy(to, &bytes, static_cast<size_t>(count));
}

// Sum i of result j gets byte 4 * j + i of each of the four.
inline void interleave(const Bytes* four, Ints* out) {
    for (int sum = 0; sum < kRegister; ++sum) {
        const uint8_t bytes[4] = {four[0][sum], four[1][sum], four[2][sum], four[3][sum]};
        out[sum / 4][sum % 4] = load<int32_t>(bytes);
    }
}

}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/level_body.h"

namespace qgraph::engine::kernels {

const Kernels* plain_kernels() { return &kKernels; }

}  // namespace qgraph::engine::kernels
