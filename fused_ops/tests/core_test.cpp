// Tests of the kernels without Python, for the sanitizers: `make test-native`. They compare with
// definitions written out below, element by element.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <thread>
#include <vector>

#include "core/depthwise_conv.h"
#include "core/histogram.h"
#include "core/parallel.h"
#include "tests/check.h"

namespace {

using namespace qgraph;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

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
    test_narrow_types();
    test_grid();
    test_engine_kernels();
    test_epilogue();
    test_broadcast();
    test_significand();
    test_statistics();
    test_depthwise_conv();
    std::puts("ok");
}
