// Tests that the quantizer's CUDA kernels, run on the CPU thread by thread, give the same bits as
// the CPU's kernels.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/quantize.h"
#include "tests/check.h"
#include "tests/emulated/cuda_quantize.h"

namespace qgraph {
namespace {

// Converts floats to elements of the type.
template <Type T>
std::vector<Element<T>> elements(const std::vector<float>& values) {
    std::vector<Element<T>> narrow;
    for (const float value : values) narrow.push_back(narrowed<T>(value));
    return narrow;
}

// True if both have the same bits; all NaN of the type count as equal.
template <Type T>
bool same_elements(const std::vector<Element<T>>& a, const std::vector<Element<T>>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](Element<T> p, Element<T> q) {
        return same(widened<T>(p), widened<T>(q));
    });
}

template <Rounding R, Type T, int Vec>
void test_one(size_t count, const std::vector<int32_t>& f) {
    const auto channels = static_cast<int64_t>(f.size());
    const auto n = static_cast<int64_t>(count);
    const Quantizer q{f.data(), channels, -8, 7, R};
    const auto x = elements<T>(with_extremes(samples(count, 1)));
    const auto g = elements<T>(samples(count, 2));
    std::vector<Element<T>> wanted(count);
    std::vector<Element<T>> found(count);
    quantize(x.data(), wanted.data(), n, q, T);
    std::vector<float> log2_t(f.size());  // some codes have 5 bits: f = 5 - ceil(log2_t)
    std::transform(f.begin(), f.end(), log2_t.begin(),
                   [](int32_t e) { return static_cast<float>(5 - e) - 0.25F; });
    const Codes codes{log2_t.data(), 5, q.low, q.high};
    QuantizeGrid grid{x.data(), g.data(), found.data(), n, channels, codes, nullptr};
    run_forward<R, T, Vec>(grid);
    CHECK(same_elements<T>(found, wanted));

    std::vector<double> wanted_sums(f.size());
    std::vector<double> sums(f.size(), -1);
    std::vector<double> partial(static_cast<size_t>(grid.blocks() * grid.columns()), -1);
    grid.partial = partial.data();
    quantize_gradients(x.data(), g.data(), wanted.data(), wanted_sums.data(), n, q, T);
    run_backward<R, T, Vec>(grid);
    run_reduce({{reduction_of(grid, {sums.data(), false})}, 1});
    CHECK(same_elements<T>(found, wanted));
    CHECK(same(sums, wanted_sums));
    std::vector<float> narrow(f.size());
    run_reduce({{reduction_of(grid, {narrow.data(), true})}, 1});
    CHECK(same(narrow, std::vector<float>(sums.begin(), sums.end())));

    found = g;  // in place
    grid.g = grid.out = found.data();
    run_backward<R, T, Vec>(grid);
    CHECK(same_elements<T>(found, wanted));
}

template <Rounding R, Type T>
void test_mode() {
    for (const size_t count : {0, 1, 31, 33, 1024, 40'001}) {
        test_one<R, T, 4>(count, {3});
        test_one<R, T, 1>(count, {3});
    }
    for (const size_t channels : {2, 3, 8, 33, 64, 1100}) {
        std::vector<int32_t> f(channels);
        for (size_t i = 0; i < channels; ++i) f[i] = static_cast<int32_t>(i % 5) + 2;
        test_one<R, T, 1>(channels * 1030, f);
        if (channels % 4 == 0) test_one<R, T, 4>(channels * 1030, f);
    }
}

template <Type T>
void test_type() {
    test_mode<Rounding::half_even, T>();
    test_mode<Rounding::half_up, T>();
    test_mode<Rounding::half_away, T>();
    test_mode<Rounding::floor, T>();
    test_mode<Rounding::double_, T>();
}

// A threshold whose scale float32 does not hold gives NaN in all results that depend on it.
void test_threshold(float log2_t, bool fits) {
    const std::vector<float> x = samples(100, 1);
    std::vector<float> y(100);
    double sum = 0;
    double partial[kLanes];
    const Codes codes{&log2_t, 4, -8, 7};
    const QuantizeGrid grid{x.data(), x.data(), y.data(), 100, 1, codes, partial};
    run_forward<Rounding::half_even, Type::float32, 1>(grid);
    CHECK(std::all_of(y.begin(), y.end(), [&](float v) { return (v == v) == fits; }));
    run_backward<Rounding::half_even, Type::float32, 1>(grid);
    run_reduce({{reduction_of(grid, {&sum, false})}, 1});
    CHECK((sum == sum) == fits);
}

}  // namespace

void test_grid() {
    for (const float log2_t : {-122.0F, 130.0F, 0.0F}) test_threshold(log2_t, true);
    for (const float log2_t : {-123.0F, 130.5F, NAN, INFINITY, -INFINITY}) {
        test_threshold(log2_t, false);
    }

    test_type<Type::float32>();
    test_type<Type::bfloat16>();
    test_type<Type::float16>();
    const std::vector<int32_t> ten(10, 3);
    test_one<Rounding::half_even, Type::float32, 4>((1 << 20) + 5000, {3});  // more than a span
    test_one<Rounding::half_even, Type::float32, 1>(10 * (32 * 32 * 33), ten);
}

}  // namespace qgraph
