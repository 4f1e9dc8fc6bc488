#include "core/stage.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"

namespace qgraph {
namespace {

// Number of values that stay in the first caches between steps.
constexpr int64_t kBlock = 1 << 12;
constexpr int64_t kGrainBlocks = 1 << 6;  // of a thread

// Comparisons are false for NaN, which stays.
QGRAPH_DISPATCH void clip(const float* x, float* y, int64_t count, float low, float high) {
    for (int64_t i = 0; i < count; ++i) {
        const float value = x[i] < low ? low : x[i];
        y[i] = value > high ? high : value;
    }
}

QGRAPH_DISPATCH void add_and_clip(const float* x, const float* bias, float* y, int64_t rows,
                                  int64_t channels, float low, float high) {
    for (int64_t row = 0; row < rows; ++row, x += channels, y += channels) {
        for (int64_t i = 0; i < channels; ++i) {
            float value = x[i] + bias[i];
            value = value < low ? low : value;
            y[i] = value > high ? high : value;
        }
    }
}

QGRAPH_DISPATCH void cap(const float* ceiling, float* y, int64_t rows, int64_t channels) {
    for (int64_t row = 0; row < rows; ++row, y += channels) {
        for (int64_t i = 0; i < channels; ++i) y[i] = y[i] > ceiling[i] ? ceiling[i] : y[i];
    }
}

Range run_block(const float* x, float* y, int64_t count, const Stage& s) {
    if (s.quantizer != nullptr) quantize(x, y, count, *s.quantizer);
    const float* from = s.quantizer != nullptr ? y : x;
    if (s.bias != nullptr) {
        add_and_clip(from, s.bias, y, count / s.channels, s.channels, s.low, s.high);
    } else {
        clip(from, y, count, s.low, s.high);
    }
    if (s.ceiling != nullptr) cap(s.ceiling, y, count / s.channels, s.channels);
    return minmax(y, count);
}

// NaN where either is.
Range joined(const Range& a, const Range& b) {
    if (a.low != a.low) return a;
    if (b.low != b.low) return b;
    return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

}  // namespace

Range stage(const float* x, float* y, int64_t count, const Stage& s) {
    const int64_t block = std::max<int64_t>(kBlock / s.channels, 1) * s.channels;
    const int64_t blocks = (count + block - 1) / block;
    std::vector<Range> found(static_cast<size_t>(blocks));
    parallel_ranges(blocks, kGrainBlocks, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t at = i * block;
            found[static_cast<size_t>(i)] =
                run_block(x + at, y + at, std::min(block, count - at), s);
        }
    });
    Range range = found[0];
    for (const Range& part : found) range = joined(range, part);
    return range;
}

}  // namespace qgraph
