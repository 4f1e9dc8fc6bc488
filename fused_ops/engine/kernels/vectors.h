// Registers of kLanes times 128 bits, by the compiler's vector extensions. Each level includes this
// once, after it has defined kLanes, so everything is in an unnamed namespace.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/kernels/layer.h"

namespace qgraph::engine::kernels {
namespace {

constexpr int kWide = 4 * kLanes;       // sums in a register
constexpr int kRegister = 16 * kLanes;  // bytes

typedef int32_t Ints __attribute__((vector_size(kRegister)));
typedef uint32_t Words __attribute__((vector_size(kRegister)));
typedef int16_t Shorts __attribute__((vector_size(kRegister)));
typedef uint16_t UShorts __attribute__((vector_size(kRegister)));
typedef uint8_t Bytes __attribute__((vector_size(kRegister)));
typedef int8_t Chars __attribute__((vector_size(kRegister)));

template <typename T>
inline T load(const void* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <typename T>
inline void store(void* to, const T& value) {
    std::memcpy(to, &value, sizeof value);
}

inline Ints fill(int32_t value) { return Ints{} + value; }
inline Ints load_four(const uint8_t* from) { return fill(load<int32_t>(from)); }
inline Ints plus(Ints a, Ints b) { return (Ints)((Words)a + (Words)b); }

template <typename T>
inline T larger(T a, T b) {
    return a > b ? a : b;
}
template <typename T>
inline T smaller(T a, T b) {
    return a < b ? a : b;
}

}  // namespace
}  // namespace qgraph::engine::kernels
