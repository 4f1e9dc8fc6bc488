// Tests of the kernels without Python, for the sanitizers: `make test-native`. Results are compared
// with the definitions, which are written out below element by element.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <thread>
#include <vector>

#include "core/conv.h"
#include "core/depthwise_conv.h"
#include "core/histogram.h"
#include "core/parallel.h"
#include "core/quantize.h"
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

// One output of a convolution, in the order that core/conv.h defines.
float convolved(const std::vector<float>& x, const std::vector<float>& w, const ConvShape& s,
                int64_t row, int64_t output) {
    const int64_t channels = s.channels / s.groups;
    const int64_t group = output / (s.outputs / s.groups);
    float total = 0;
    float sum = 0;
    for (int64_t k = 0; k < s.kernel_h * s.kernel_w * channels; ++k) {
        const int64_t tap = k / channels;
        const int64_t i =
            row / s.out_w % s.out_h * s.stride_h - s.pad_top + tap / s.kernel_w * s.dilation_h;
        const int64_t j = row % s.out_w * s.stride_w - s.pad_left + tap % s.kernel_w * s.dilation_w;
        const bool inside = i >= 0 && i < s.height && j >= 0 && j < s.width;
        const int64_t pixel = (row / (s.out_w * s.out_h) * s.height + i) * s.width + j;
        const int64_t at = pixel * s.channels + group * channels + k % channels;
        sum = std::fma(inside ? x[at] : 0.0F, w[k * s.outputs + output], sum);
        if ((k + 1) % kConvDepth == 0) {
            total += sum;
            sum = 0;
        }
    }
    return total + sum;
}

void test_conv() {
    const ConvShape shapes[] = {
        {2, 9, 7, 3, 3, 3, 5, 1, 2, 1, 1, 1, 1, 1, 5, 7},        // stride and padding
        {1, 12, 9, 6, 3, 2, 66, 2, 1, 2, 2, 3, 2, 3, 12, 5},     // groups and dilation
        {1, 40, 40, 35, 1, 1, 48, 1, 1, 1, 1, 1, 0, 0, 40, 40},  // many tasks
        {1, 5, 5, 100, 3, 3, 300, 1, 1, 1, 1, 1, 1, 1, 5, 5},    // several blocks of products
    };
    const InstructionSet best = chosen();
    for (const ConvShape& s : shapes) {
        std::vector<float> x(s.batch * s.height * s.width * s.channels);
        std::vector<float> w(s.kernel_h * s.kernel_w * s.channels / s.groups * s.outputs);
        unsigned state = 1;
        for (std::vector<float>* values : {&x, &w}) {
            for (float& v : *values) {
                state = state * 1664525 + 1013904223;
                v = static_cast<float>(static_cast<int>(state >> 8)) * 0x1p-24F - 0.3F;
            }
        }
        const int64_t rows = s.batch * s.out_h * s.out_w;
        for (const InstructionSet set :
             {InstructionSet::plain, InstructionSet::avx2, InstructionSet::avx512}) {
            if (!choose(set)) continue;
            for (const int count : {1, 3}) {
                set_threads(count);
                std::vector<float> y(rows * s.outputs, kNan);
                conv2d(x.data(), w.data(), y.data(), s);
                bool same = true;
                for (int64_t i = 0; i < rows * s.outputs; ++i) {
                    same &= y[i] == convolved(x, w, s, i / s.outputs, i % s.outputs);
                }
                CHECK(same);
            }
        }
    }
    choose(best);
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
    test_epilogue_grid();
    test_norm();
    test_codes();
    test_broadcast();
    test_rounding();
    test_significand();
    test_statistics();
    test_depthwise_conv();
    test_conv();
    std::puts("ok");
}
