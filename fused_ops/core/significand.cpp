#include "core/significand.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/parallel.h"

namespace qgraph {
namespace {

constexpr int64_t kGrain = 1 << 18;
constexpr float kLeastNormal = 0x1p-14F;
constexpr float kBeyond = 0x1p16F;
constexpr uint32_t kExponent = 0x7F800000U;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Every operation except the rounding is exact, since factors are powers of two.
QGRAPH_DISPATCH void round_range(const float* x, float* y, int64_t count, float scale) {
    const float step = 1.0F / scale;
    for (int64_t i = 0; i < count; ++i) {
        const float value = x[i];
        uint32_t exponent;
        std::memcpy(&exponent, &value, sizeof exponent);
        exponent &= kExponent;
        float power;  // the largest power of two <= |value|
        std::memcpy(&power, &exponent, sizeof power);
        power = power > kLeastNormal ? power : kLeastNormal;
        const float rounded = std::nearbyint(value / power * scale) * (power * step);
        const bool beyond = !(std::fabs(rounded) < kBeyond);
        const float end = value != value ? value : std::copysign(kInfinity, value);
        y[i] = beyond ? end : rounded;
    }
}

// The exponents are those of float16, so only the last bits are dropped. A carry goes into the
// exponent, and from the largest number to infinity, which is correct.
QGRAPH_DISPATCH void round_range(const uint16_t* x, uint16_t* y, int64_t count, int dropped) {
    const unsigned rest = (1U << dropped) - 1;
    for (int64_t i = 0; i < count; ++i) {
        const unsigned value = x[i];
        const unsigned odd = (value >> dropped) & rest & 1;  // last bit that stays; 0 if all stay
        const unsigned rounded = (value + (rest >> 1) + odd) & ~rest;
        const bool nan = (value & 0x7FFF) > 0x7C00;
        y[i] = static_cast<uint16_t>(nan ? value | 0x0200 : rounded);  // makes NaN quiet
    }
}

}  // namespace

void round_significand(const float* x, float* y, int64_t count, int bits) {
    const float scale = std::ldexp(1.0F, bits);
    parallel_ranges(count, kGrain, [&](int64_t begin, int64_t end, int) {
        round_range(x + begin, y + begin, end - begin, scale);
    });
}

void round_significand(const uint16_t* x, uint16_t* y, int64_t count, int bits) {
    parallel_ranges(count, kGrain, [&](int64_t begin, int64_t end, int) {
        round_range(x + begin, y + begin, end - begin, kMaxSignificand - bits);
    });
}

}  // namespace qgraph
