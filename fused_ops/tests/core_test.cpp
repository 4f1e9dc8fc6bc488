// Tests of the kernels without Python, for the sanitizers: `make test-native`. They compare with
// definitions written out below, element by element.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "core/depthwise_conv.h"
#include "core/histogram.h"
#include "core/parallel.h"
#include "core/quantize.h"

namespace {

using namespace qgraph;

#define CHECK(condition)                                                         \
    do {                                                                         \
        if (!(condition)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                        \
        }                                                                        \
    } while (false)

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kLn2 = 0.693147180559945309417232121458;

template <typename T>
bool same(T a, T b) {
    return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

template <typename T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](T p, T q) { return same(p, q); });
}

double rounded(double v, Rounding rounding) {
    if (rounding == Rounding::half_even) return std::nearbyint(v);
    if (rounding == Rounding::floor) return std::floor(v);
    const double size = rounding == Rounding::half_away ? std::fabs(v) : v;
    const double whole = std::floor(size) + (size - std::floor(size) >= 0.5 ? 1 : 0);
    return rounding == Rounding::half_away && v < 0 ? -whole : whole;
}

struct Results {
    std::vector<float> y, gx;
    std::vector<double> glog2t;
};

// Products of one channel (or lane), summed as quantize.h says.
double ordered_sum(const std::vector<double>& products) {
    double total = 0;
    size_t i = 0;
    while (i < products.size()) {
        double block = 0;
        for (int64_t leaf = 0; leaf < kLeaves && i < products.size(); ++leaf) {
            double sum = 0;
            for (int64_t row = 0; row < kLeafRows && i < products.size(); ++row) {
                sum += products[i++];
            }
            block += sum;
        }
        total += block;
    }
    return total;
}

Results expected(const std::vector<float>& x, const std::vector<float>& g, const Quantizer& q) {
    Results results{x, g, std::vector<double>(static_cast<size_t>(q.channels))};
    const size_t columns = static_cast<size_t>(q.channels == 1 ? kLanes : q.channels);
    std::vector<std::vector<double>> products(columns);
    for (size_t i = 0; i < x.size(); ++i) {
        const int f = q.f[i % static_cast<size_t>(q.channels)];
        const double r = rounded(std::ldexp(static_cast<double>(x[i]), f), q.rounding);
        const bool below = r < q.low;
        const bool above = r > q.high;
        const double code = below ? q.low : (above ? q.high : r);
        const float slope =
            below ? q.low : (above ? q.high : static_cast<float>(r) - std::ldexp(x[i], f));
        results.y[i] = static_cast<float>(std::ldexp(code, -f)) + 0.0F;
        results.gx[i] = below || above ? 0.0F : g[i];
        products[i % columns].push_back(static_cast<double>(g[i]) * slope);
    }
    std::vector<double> sums;
    for (const std::vector<double>& column : products) sums.push_back(ordered_sum(column));
    for (size_t half = columns / 2; q.channels == 1 && half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    for (size_t i = 0; i < results.glog2t.size(); ++i) {
        results.glog2t[i] = std::ldexp(kLn2, -q.f[i]) * sums[i] + 0.0;
    }
    return results;
}

std::vector<float> samples(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(count);
    for (float& value : x) value = normal(random);
    for (size_t i = 0; i < count; i += 5) x[i] = std::nearbyint(x[i] * 64) / 64;
    const float special[] = {kNan, kInf, -kInf, -0.0F, 1e-42F, -1e-42F, 3e38F};
    for (size_t i = 0; i < std::size(special) && count > 100; ++i) x[i * 7 + 1] = special[i];
    return x;
}

void test_quantizer_of(size_t count, int64_t channels, size_t offset) {
    const std::vector<float> x = samples(count, 1);
    std::vector<float> g = samples(count, 2);
    std::vector<int32_t> f(static_cast<size_t>(channels));
    for (size_t i = 0; i < f.size(); ++i) f[i] = static_cast<int32_t>(i % 5) + 2;
    for (int mode = 0; mode < kRoundings; ++mode) {
        const Quantizer q{f.data(), channels, -8, 7, static_cast<Rounding>(mode)};
        const Results wanted = expected(x, g, q);
        // Memory of just this size, so that the sanitizer sees a step beyond it.
        const auto memory = [&] { return std::make_unique<float[]>(count + offset); };
        const auto own_x = memory();
        const auto own_g = memory();
        const auto out = memory();
        std::copy(x.begin(), x.end(), own_x.get() + offset);
        std::copy(g.begin(), g.end(), own_g.get() + offset);
        const auto copy = [&](const std::unique_ptr<float[]>& from) {
            return std::vector<float>(from.get() + offset, from.get() + offset + count);
        };
        const auto n = static_cast<int64_t>(count);
        quantize(own_x.get() + offset, out.get() + offset, n, q);
        CHECK(same(copy(out), wanted.y));
        std::vector<double> sums(f.size(), -1);
        quantize_gradients(own_x.get() + offset, own_g.get() + offset, out.get() + offset,
                           sums.data(), n, q);
        CHECK(same(copy(out), wanted.gx));
        CHECK(same(sums, wanted.glog2t));
        quantize_gradients(own_x.get() + offset, own_g.get() + offset, own_g.get() + offset,
                           sums.data(), n, q);
        CHECK(same(copy(own_g), wanted.gx));
        CHECK(same(sums, wanted.glog2t));
        quantize(own_x.get() + offset, own_x.get() + offset, n, q);
        CHECK(same(copy(own_x), wanted.y));
    }
}

void test_quantizer() {
    for (const InstructionSet set :
         {InstructionSet::plain, InstructionSet::avx2, InstructionSet::avx512}) {
        if (!choose(set)) continue;
        CHECK(chosen() == set);
        for (int count = 1; count <= 4; ++count) {
            set_threads(count);
            for (const size_t size : {0, 1, 31, 32, 1000, 1024, 40'001, 300'000}) {
                test_quantizer_of(size, 1, size % 3);
            }
            for (const int64_t channels : {2, 3, 8, 33, 64, 1100}) {
                test_quantizer_of(static_cast<size_t>(channels) * 1030, channels, 1);
            }
        }
    }
    const std::vector<float> x((1 << 22) + 64 + 5, 0.3F);  // written past the caches
    const int32_t f = 3;
    const Quantizer q{&f, 1, -8, 7, Rounding::half_even};
    std::vector<float> y(x.size());
    const size_t lead = (64 - reinterpret_cast<uintptr_t>(y.data()) % 64) % 64 / 4;
    quantize(x.data(), y.data() + lead, static_cast<int64_t>(x.size() - lead), q);
    CHECK(std::all_of(y.begin() + static_cast<ptrdiff_t>(lead), y.end(),
                      [](float value) { return value == 0.25F; }));
}

void test_tasks() {
    for (int count = 1; count <= 4; ++count) {
        set_threads(count);
        for (const int64_t tasks : {0, 1, 7, 1000}) {
            std::vector<std::atomic<int>> done(static_cast<size_t>(tasks));
            parallel_tasks(tasks, tasks, [&](int64_t task) { ++done[static_cast<size_t>(task)]; });
            CHECK(std::all_of(done.begin(), done.end(), [](const auto& n) { return n == 1; }));
        }
    }
}

void test_tasks_of_many_callers() {
    set_threads(3);
    std::atomic<int64_t> sum{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) {
        callers.emplace_back([&] {
            for (int i = 0; i < 200; ++i) {
                parallel_tasks(10, 10, [&](int64_t task) { sum += task; });
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(sum == 4 * 200 * 45);
}

void test_ranges() {
    set_threads(4);
    std::vector<int> seen(1003);
    parallel_ranges(1003, 100, [&](int64_t begin, int64_t end, int part) {
        CHECK(part < 4);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
}

void test_statistics() {
    const std::vector<float> x{-kInf, -1, -0.5F, -0.0F, 0, 0.5F, 1, kInf};
    const Range range = minmax(x.data(), static_cast<int64_t>(x.size()));
    CHECK(range.low == -kInf && range.high == kInf);
    std::vector<int64_t> bins(4);
    CHECK(histogram(x.data(), static_cast<int64_t>(x.size()), 2, 1, bins.data()));
    CHECK((bins == std::vector<int64_t>{2, 1, 0, 3}));
    const std::vector<float> bad(100, kNan);
    CHECK(std::isnan(minmax(bad.data(), 100).low));
    CHECK(!histogram(bad.data(), 100, 2, 1, bins.data()));
}

void test_depthwise_conv() {
    const std::vector<float> x(5 * 4 * 3, 1.0F);
    const std::vector<float> w(3 * 3 * 3, 1.0F);
    std::vector<float> y(5 * 4 * 3);
    depthwise_conv(x.data(), w.data(), y.data(), {1, 5, 4, 3, 3, 3, 1, 1, 1, 1, 1, 1, 5, 4});
    CHECK(y[0] == 4 && y[3] == 6 && y[(1 * 4 + 1) * 3] == 9);
}

}  // namespace

int main() {
    test_tasks();
    test_tasks_of_many_callers();
    test_ranges();
    test_quantizer();
    test_statistics();
    test_depthwise_conv();
    std::puts("ok");
}
