// Compares rounding to few significand bits with its definition: the nearest of all numbers of the
// format.

#include "core/significand.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/check.h"

namespace qgraph {
namespace {

// All finite numbers that are at least 0, in order, and 2^16 in place of infinity.
std::vector<float> numbers(int bits) {
    std::vector<float> found;
    for (int exponent = 0; exponent < 31; ++exponent) {
        for (int rest = 0; rest < 1 << bits; ++rest) {
            const int whole = exponent == 0 ? rest : rest + (1 << bits);
            found.push_back(
                std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - 15 - bits));
        }
    }
    found.push_back(65536.0F);
    return found;
}

float decoded(int bits) {
    const int exponent = bits >> 10 & 31;
    const int rest = bits & 1023;
    float size = std::ldexp(static_cast<float>(rest + (exponent > 0 ? 1024 : 0)),
                            std::max(exponent, 1) - 25);
    if (exponent == 31) size = rest == 0 ? INFINITY : NAN;
    return (bits & 0x8000) != 0 ? -size : size;
}

// Rounds each number of float16 twice, as bits and as float32: the results are the same.
void test_halves(int bits) {
    std::vector<uint16_t> halves(1 << 16);
    std::vector<float> wanted(halves.size());
    std::vector<float> found(halves.size());
    for (size_t i = 0; i < halves.size(); ++i) {
        halves[i] = static_cast<uint16_t>(i);
        wanted[i] = decoded(halves[i]);
    }
    const auto count = static_cast<int64_t>(halves.size());
    round_significand(wanted.data(), wanted.data(), count, bits);
    round_significand(halves.data(), halves.data(), count, bits);
    std::transform(halves.begin(), halves.end(), found.begin(), decoded);
    CHECK(same(found, wanted));
}

}  // namespace

void test_significand() {
    constexpr float inf = std::numeric_limits<float>::infinity();
    for (int bits = 1; bits <= 10; ++bits) {
        const std::vector<float> all = numbers(bits);
        std::vector<float> given{NAN, inf, -inf, 3e38F, -3e38F, -0.0F, 1e-40F};
        std::vector<float> wanted{NAN, inf, -inf, inf, -inf, -0.0F, 0.0F};
        for (size_t i = 0; i + 1 < all.size(); ++i) {
            const float low = all[i];
            const float high = i + 2 == all.size() ? inf : all[i + 1];
            const float middle = (all[i] + all[i + 1]) / 2;  // exact
            const float even = i % 2 == 0 ? low : high;
            for (const float sign : {1.0F, -1.0F}) {
                for (const float value : {low, middle}) given.push_back(sign * value);
                given.push_back(sign * std::nextafter(middle, 0.0F));
                given.push_back(sign * std::nextafter(middle, inf));
                for (const float value : {low, even, low, high}) wanted.push_back(sign * value);
            }
        }
        std::vector<float> found(given.size());
        round_significand(given.data(), found.data(), static_cast<int64_t>(given.size()), bits);
        CHECK(same(found, wanted));
        round_significand(given.data(), given.data(), static_cast<int64_t>(given.size()), bits);
        CHECK(same(given, wanted));
        test_halves(bits);
    }
}

}  // namespace qgraph
