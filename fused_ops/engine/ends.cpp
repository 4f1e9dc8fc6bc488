#include "engine/ends.h"

#include <algorithm>
#include <cmath>

namespace qgraph::engine {

bool to_codes(const float* x, int64_t count, const FloatEntry& entry, Storage type, void* codes) {
    constexpr int64_t kSome = 1024;  // numbers that stay in the first-level cache
    const Quantizer quantizer{&entry.exponent, 1, entry.low, entry.high, entry.rounding};
    const float scale = std::ldexp(1.0f, entry.exponent);
    float values[kSome];
    bool numbers = true;
    with_type(type, [&](auto example) {
        auto* to = static_cast<decltype(example)*>(codes);
        for (int64_t begin = 0; begin < count; begin += kSome) {
            const int64_t size = std::min(kSome, count - begin);
            quantize(x + begin, values, size, quantizer);
            for (int64_t i = 0; i < size; ++i) {
                const bool is_number = values[i] == values[i];
                numbers &= is_number;
                to[begin + i] =
                    static_cast<decltype(example)>(is_number ? values[i] * scale : 0.0f);
            }
        }
    });
    return numbers;
}

void to_floats(const void* codes, int64_t count, Storage type, int32_t exponent, float* y) {
    const double unit = std::ldexp(1.0, -exponent);
    with_type(type, [&](auto example) {
        const auto* from = static_cast<const decltype(example)*>(codes);
        for (int64_t i = 0; i < count; ++i) {
            y[i] = static_cast<float>(static_cast<double>(from[i]) * unit);
        }
    });
}

}  // namespace qgraph::engine
