#include "core/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"

namespace qgraph {
namespace {

constexpr int64_t kMinmaxGrain = 1 << 21;
constexpr int64_t kHistogramGrain = 1 << 18;
constexpr int kLanes = 64;
constexpr int kBlock = 1024;
constexpr int kSpareBins = 8;

// Separate lanes, because a compiler may not reorder one running minimum. There are so many that
// the compiler keeps the loop over them and vectorises it.
QGRAPH_DISPATCH Range minmax_range(const float* x, int64_t count) {
    float low[kLanes];
    float high[kLanes];
    int nan[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
        low[lane] = std::numeric_limits<float>::infinity();
        high[lane] = -std::numeric_limits<float>::infinity();
        nan[lane] = 0;
    }
    const int64_t whole = count - count % kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) {
            const float value = x[i + lane];
            low[lane] = value < low[lane] ? value : low[lane];
            high[lane] = value > high[lane] ? value : high[lane];
            nan[lane] |= value != value;
        }
    }
    Range range{low[0], high[0]};
    bool any_nan = false;
    for (int lane = 0; lane < kLanes; ++lane) {
        range.low = std::min(range.low, low[lane]);
        range.high = std::max(range.high, high[lane]);
        any_nan |= nan[lane] != 0;
    }
    for (int64_t i = whole; i < count; ++i) {
        range.low = std::min(range.low, x[i]);
        range.high = std::max(range.high, x[i]);
        any_nan |= x[i] != x[i];
    }
    if (any_nan) range.low = range.high = std::numeric_limits<float>::quiet_NaN();
    return range;
}

// Powers of two whose product is the scale, which a float may not hold.
struct Scale {
    float first, second;

    explicit Scale(double scale) {
        // With 2^252 already any number but 0 is beyond the last bin.
        const int power = std::min(std::ilogb(scale), 252);
        first = std::ldexp(1.0f, power / 2);
        second = std::ldexp(1.0f, power - power / 2);
    }
};

// Bin of each value; returns whether any is NaN. A product is exact, or so small that its sign
// alone counts, which the value still has where the product is zero. Zeros go to spare bins after
// the others, in turn: counts in one bin would have to wait for each other.
QGRAPH_DISPATCH bool bin_indices(const float* x, int count, Scale scale, int half, int* index) {
    const float lowest = static_cast<float>(-half);
    const float highest = static_cast<float>(half - 1);
    int nan = 0;
    for (int i = 0; i < count; ++i) {
        float value = x[i] * scale.first * scale.second;
        nan |= value != value;
        value = value > lowest ? value : lowest;  // NaN becomes a number here
        value = value < highest ? value : highest;
        const int truncated = static_cast<int>(value);
        const int vanished = (value == 0.0F) & (x[i] < 0.0F);
        index[i] = truncated - ((static_cast<float>(truncated) > value) | vanished) + half;
    }
    // This is a separate loop with masks, because the compiler does not vectorise it inside the
    // first.
    for (int i = 0; i < count; ++i) {
        const int zero = -static_cast<int>(x[i] == 0.0F);
        index[i] = (index[i] & ~zero) | ((2 * half + (i & (kSpareBins - 1))) & zero);
    }
    return nan != 0;
}

bool histogram_range(const float* x, int64_t count, Scale scale, int half, int64_t* bins) {
    int index[kBlock];
    for (int64_t begin = 0; begin < count; begin += kBlock) {
        const int size = static_cast<int>(std::min<int64_t>(kBlock, count - begin));
        if (bin_indices(x + begin, size, scale, half, index)) return false;
        for (int i = 0; i < size; ++i) ++bins[index[i]];
    }
    return true;
}

}  // namespace

Range minmax(const float* x, int64_t count) {
    std::vector<Range> parts(threads(), Range{x[0], x[0]});
    parallel_ranges(count, kMinmaxGrain, [&](int64_t begin, int64_t end, int part) {
        parts[part] = minmax_range(x + begin, end - begin);
    });
    Range range = parts[0];
    for (const Range& part : parts) {
        if (part.low != part.low) return part;
        range = {std::min(range.low, part.low), std::max(range.high, part.high)};
    }
    return range;
}

bool histogram(const float* x, int64_t count, double scale, int log2_bins, int64_t* bins) {
    const int half = 1 << log2_bins;
    std::vector<std::vector<int64_t>> parts(threads());
    std::vector<char> ok(parts.size(), 1);
    parallel_ranges(count, kHistogramGrain, [&](int64_t begin, int64_t end, int part) {
        parts[part].resize(2 * half + kSpareBins);
        ok[part] = histogram_range(x + begin, end - begin, Scale(scale), half, parts[part].data());
    });
    for (const std::vector<int64_t>& part : parts) {
        if (part.empty()) continue;
        for (int bin = 0; bin < 2 * half; ++bin) bins[bin] += part[bin];
    }
    return std::all_of(ok.begin(), ok.end(), [](char fine) { return fine != 0; });
}

QGRAPH_DISPATCH Tails tails(const float* x, int64_t count, double low, double high, double small) {
    int64_t below = 0;
    int64_t above = 0;
    int64_t within = 0;
    for (int64_t i = 0; i < count; ++i) {
        const double value = x[i];
        below += static_cast<int64_t>(value < low);
        above += static_cast<int64_t>(value > high);
        within += static_cast<int64_t>(std::fabs(value) < small);
    }
    return {below, above, within};
}

}  // namespace qgraph
