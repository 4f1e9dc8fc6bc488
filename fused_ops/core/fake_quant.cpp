#include "core/fake_quant.h"

#include <cmath>

#include "core/parallel.h"

namespace qgraph {
namespace {

constexpr int64_t kGrain = 1 << 20;

// Clipping before rounding gives the same number, since the bounds are whole.
QGRAPH_DISPATCH void fake_quant_range(const float* x, float* y, int64_t count, float scale,
                                      float step, float low, float high) {
    for (int64_t i = 0; i < count; ++i) {
        float value = x[i] * scale;
        value = value < low ? low : value;  // comparisons are false for NaN, which passes
        value = value > high ? high : value;
        y[i] = std::rint(value) * step + 0.0f;  // + 0 turns -0 into +0
    }
}

}  // namespace

void fake_quant(const float* x, float* y, int64_t count, int f, float low, float high) {
    const float scale = std::ldexp(1.0f, f);
    const float step = std::ldexp(1.0f, -f);
    parallel_ranges(count, kGrain, [&](int64_t begin, int64_t end, int) {
        fake_quant_range(x + begin, y + begin, end - begin, scale, step, low, high);
    });
}

}  // namespace qgraph
