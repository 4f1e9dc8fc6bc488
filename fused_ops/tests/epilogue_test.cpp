// Tests of the epilogue on the CPU: it gives the same bits as the quantizer, a bias, an activation
// and the quantizer again, applied one after the other.

#include "core/epilogue.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "core/quantize.h"
#include "tests/check.h"

namespace qgraph {

std::vector<double> sums_of_channels(const std::vector<double>& values, size_t channels) {
    const size_t lanes = kLanes;
    const size_t block = lanes * kLeafRows * kLeaves;
    std::vector<double> total(channels), span(channels);
    for (size_t from = 0, number = 0; from < values.size(); from += block, ++number) {
        std::vector<double> slots(channels + lanes - 1);
        for (size_t i = from; i < std::min(values.size(), from + block); ++i) {
            slots[i / lanes * lanes % channels + i % lanes] += values[i];
        }
        std::vector<double> sums(channels);
        for (size_t i = 0; i < slots.size(); ++i) sums[i % channels] += slots[i];
        if (number % kBlocks == 0) {
            for (size_t i = 0; i < channels; ++i) total[i] += span[i];
            span = sums;
        } else {
            for (size_t i = 0; i < channels; ++i) span[i] += sums[i];
        }
    }
    for (size_t i = 0; i < channels; ++i) total[i] += span[i];
    return total;
}

namespace {

struct Results {
    std::vector<float> y, gx;
    double inner = 0, outer = 0;
    std::vector<double> bias, high;
};

Quantizer quantizer(const Grid& grid, Rounding rounding) {
    return {&grid.f, 1, grid.low, grid.high, rounding};
}

Results expected(const std::vector<float>& x, const std::vector<float>& g, const Epilogue& e) {
    const size_t count = x.size();
    const auto channels = static_cast<size_t>(e.channels);
    const auto size = static_cast<int64_t>(count);
    std::vector<float> z(count), v(count), gv(count), gz(count), gh(count);
    Results r{std::vector<float>(count), std::vector<float>(count), 0, 0, {}, {}};
    quantize(x.data(), z.data(), size, quantizer(e.inner, e.rounding));
    for (size_t i = 0; i < count; ++i) {
        z[i] += e.bias[i % channels];
        v[i] = e.activation != Activation::none && z[i] < 0 ? 0 : z[i];
        if (e.activation == Activation::clip && v[i] > e.high[i % channels]) {
            v[i] = e.high[i % channels];
        }
    }
    quantize(v.data(), r.y.data(), size, quantizer(e.outer, e.rounding));
    quantize_gradients(v.data(), g.data(), gv.data(), &r.outer, size,
                       quantizer(e.outer, e.rounding));
    for (size_t i = 0; i < count; ++i) {
        gz[i] = gv[i];
        if (e.activation == Activation::clip) {
            const float relu = z[i] < 0 ? 0 : z[i];
            const float high = e.high[i % channels];
            const bool passes = e.open ? relu < high : relu <= high;
            gh[i] = passes ? 0 : gv[i];
            gz[i] = passes ? gv[i] : 0;
        }
        if (e.activation != Activation::none && !(z[i] > 0)) gz[i] = 0;
    }
    quantize_gradients(x.data(), gz.data(), r.gx.data(), &r.inner, size,
                       quantizer(e.inner, e.rounding));
    r.bias = sums_of_channels({gz.begin(), gz.end()}, channels);
    if (e.activation == Activation::clip)
        r.high = sums_of_channels({gh.begin(), gh.end()}, channels);
    return r;
}

void compare(const std::vector<float>& x, const std::vector<float>& g, const Epilogue& e,
             const Results& wanted) {
    const auto count = static_cast<int64_t>(x.size());
    std::vector<float> y(x.size()), in_place = x;
    epilogue(x.data(), y.data(), count, e);
    CHECK(same(y, wanted.y));
    epilogue(in_place.data(), in_place.data(), count, e);
    CHECK(same(in_place, wanted.y));
    in_place = g;
    for (float* gx : {y.data(), in_place.data()}) {
        std::vector<double> bias(static_cast<size_t>(e.channels), -1), high(wanted.high.size(), -1);
        EpilogueSums sums{-1, -1, bias.data(), high.data()};
        epilogue_gradients(x.data(), gx == y.data() ? g.data() : gx, gx, sums, count, e);
        CHECK(same(std::vector<float>(gx, gx + count), wanted.gx));
        CHECK(same(sums.inner, wanted.inner) && same(sums.outer, wanted.outer));
        CHECK(same(bias, wanted.bias));
        CHECK(same(high, wanted.high));
    }
}

void test_one(const std::vector<float>& x, const std::vector<float>& g, const Epilogue& e) {
    const InstructionSet before = chosen();
    const Results wanted = expected(x, g, e);
    for (const InstructionSet set :
         {InstructionSet::plain, InstructionSet::avx2, InstructionSet::avx512}) {
        if (!choose(set)) continue;
        for (const int count : {1, 2, 3}) {
            set_threads(count);
            compare(x, g, e, wanted);
        }
    }
    choose(before);
}

void test_shape(size_t rows, size_t channels, Rounding rounding) {
    std::vector<float> bias = samples(channels, 3);
    for (float& b : bias) b = std::nearbyint(b * 64) / 64;
    std::vector<float> high(channels, 1.5F);  // some codes equal it, others exceed it
    high[channels / 2] = 0;
    const std::vector<float> x = with_extremes(samples(rows * channels, 1));
    const std::vector<float> g = samples(rows * channels, 2);
    const Grid inner{6, -128, 127};
    const Grid outer{3, 0, 15};
    const Grid with_sign{3, -8, 7};
    const auto c = static_cast<int64_t>(channels);
    for (const bool open : {false, true}) {
        test_one(x, g,
                 {inner, outer, rounding, Activation::clip, c, bias.data(), high.data(), open});
    }
    test_one(x, g, {inner, outer, rounding, Activation::relu, c, bias.data(), nullptr, false});
    test_one(x, g, {inner, with_sign, rounding, Activation::none, c, bias.data(), nullptr, false});
}

}  // namespace

void test_epilogue() {
    for (int mode = 0; mode < kRoundings; ++mode) {
        const auto rounding = static_cast<Rounding>(mode);
        for (const size_t rows : {0, 1, 5, 3000}) test_shape(rows, 12, rounding);
    }
    for (const size_t channels : {1, 2, 3, 8, 31, 32, 33, 64, 100}) {
        test_shape(70'000 / channels, channels, Rounding::half_even);
    }
    test_shape(70, 1100, Rounding::half_even);
    test_shape(3, 40'000, Rounding::half_even);    // more channels than a block has elements
    test_shape(100'000, 11, Rounding::half_even);  // more than a span
    std::vector<float> diverged = samples(1200, 4);
    diverged[500] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> bias(12, 0.25F), high(12, 1.0F);
    for (const Activation activation : {Activation::none, Activation::relu, Activation::clip}) {
        const Epilogue e{{6, -128, 127}, {3, -8, 7}, Rounding::half_even,
                         activation,     12,         bias.data(),
                         high.data(),    false};
        test_one(diverged, samples(1200, 5), e);
        test_one(samples(1200, 5), diverged, e);
    }
}

}  // namespace qgraph
