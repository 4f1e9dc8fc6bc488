// Tests of batch norms on the CPU: the same bits on any instruction set and with any number of
// threads. A normed epilogue is the epilogue of the normalized tensor.

#include "core/norm.h"

#include <cmath>
#include <vector>

#include "core/epilogue.h"
#include "core/parallel.h"
#include "core/quantize.h"
#include "tests/check.h"

namespace qgraph {
namespace {

struct Results {
    std::vector<float> y, gx, added;
    std::vector<double> sums;  // of both quantizers, then of bias, scale, shift, mean and variance
};

Results results(const std::vector<float>& x, const std::vector<float>& g, const Norm& norm,
                const Epilogue& e) {
    const auto count = static_cast<int64_t>(x.size());
    const auto channels = static_cast<size_t>(e.channels);
    Results r{std::vector<float>(x.size()), g, g, std::vector<double>(2 + 5 * channels, -1)};
    double* of_channels = r.sums.data() + 2;
    normed_epilogue(x.data(), r.y.data(), count, norm, e);
    EpilogueSums sums{-1, -1, of_channels, nullptr};
    NormSums norm_sums{of_channels + channels, of_channels + 2 * channels};
    normed_epilogue_gradients(x.data(), r.gx.data(), r.gx.data(), sums, norm_sums, count, norm, e);
    r.sums[0] = sums.inner;
    r.sums[1] = sums.outer;
    moments(x.data(), count, e.channels, norm.centre, of_channels + 3 * channels,
            of_channels + 4 * channels);
    add_normalized(r.added.data(), x.data(), r.added.data(), count, e.channels, norm);
    return r;
}

void check_values(const Results& r, const std::vector<float>& x, const std::vector<float>& g,
                  const Norm& norm, const Epilogue& e) {
    const auto count = static_cast<int64_t>(x.size());
    const auto channels = static_cast<size_t>(e.channels);
    std::vector<float> normalized(x.size()), y(x.size()), gx(x.size()), added(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
        const size_t c = i % channels;
        normalized[i] = (x[i] - norm.centre[c]) * norm.scale[c] + norm.shift[c];
        added[i] = g[i] + normalized[i];
    }
    epilogue(normalized.data(), y.data(), count, e);
    std::vector<double> bias(channels);
    EpilogueSums sums{0, 0, bias.data(), nullptr};
    epilogue_gradients(normalized.data(), g.data(), gx.data(), sums, count, e);
    std::vector<double> by_scale(channels), by_shift(channels), mean(channels), variance(channels);
    for (size_t i = 0; i < x.size(); ++i) {
        const size_t c = i % channels;
        by_scale[c] += static_cast<double>(gx[i]) * (x[i] - norm.centre[c]);
        by_shift[c] += gx[i];
        mean[c] += x[i];
        gx[i] *= norm.scale[c];
    }
    const double rows = static_cast<double>(x.size() / channels);
    for (double& m : mean) m /= rows;
    for (size_t i = 0; i < x.size(); ++i) {
        variance[i % channels] += std::pow(x[i] - mean[i % channels], 2) / rows;
    }
    CHECK(same(r.y, y) && same(r.gx, gx) && same(r.added, added));
    CHECK(same(r.sums[0], sums.inner) && same(r.sums[1], sums.outer));
    const auto near = [](double a, double b) {
        return std::fabs(a - b) < 1e-7 * (1 + std::fabs(b));
    };
    for (size_t c = 0; c < channels; ++c) {
        const double* found = r.sums.data() + 2 + c;
        CHECK(same(found[0], bias[c]));
        CHECK(near(found[channels], by_scale[c]) && near(found[2 * channels], by_shift[c]));
        CHECK(near(found[3 * channels], mean[c]) && near(found[4 * channels], variance[c]));
    }
}

void test_shape(size_t rows, size_t channels) {
    const std::vector<float> x = samples(rows * channels, 1), g = samples(rows * channels, 2);
    const std::vector<float> bias = samples(channels, 3), centre = samples(channels, 4);
    const std::vector<float> scale = samples(channels, 5), shift = samples(channels, 6);
    const Norm norm{centre.data(), scale.data(), shift.data()};
    const Epilogue e{{6, -128, 127},
                     {3, 0, 15},
                     Rounding::half_even,
                     Activation::relu,
                     static_cast<int64_t>(channels),
                     bias.data(),
                     nullptr,
                     false};
    const InstructionSet before = chosen();
    Results first;
    for (const InstructionSet set :
         {InstructionSet::plain, InstructionSet::avx2, InstructionSet::avx512}) {
        if (!choose(set)) continue;
        for (const int count : {1, 3}) {
            set_threads(count);
            const Results found = results(x, g, norm, e);
            if (first.y.empty()) {
                first = found;
                check_values(found, x, g, norm, e);
            }
            CHECK(same(found.y, first.y) && same(found.gx, first.gx));
            CHECK(same(found.added, first.added) && same(found.sums, first.sums));
        }
    }
    choose(before);
}

}  // namespace

void test_norm() {
    for (const size_t channels : {1, 3, 8, 31, 32, 33, 100})
        test_shape(70'000 / channels, channels);
    test_shape(5, 12);
    test_shape(3, 40'000);  // more channels than a block has elements
}

}  // namespace qgraph
