// The CUDA kernels, run on the CPU thread by thread, give what the CPU's own give.

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/quantize.h"
#include "cuda/quantize_grid.h"
#include "tests/check.h"

namespace qgraph {
namespace {

// Calls f for each thread of a block.
template <typename F>
void each_thread(int64_t block, int width, int height, F f) {
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) f(Place{block, x, y, height});
    }
}

template <Rounding R, Type T, int Vec>
void run_forward(const Grid& grid) {
    constexpr int kRows = 8;
    const int64_t blocks = (grid.leaves() + kRows - 1) / kRows * grid.tiles();
    for (int64_t block = 0; block < blocks; ++block) {
        each_thread(block, kTile / Vec, kRows,
                    [&](const Place& place) { forward_thread<R, T, Vec>(grid, place); });
    }
}

template <Rounding R, Type T, int Vec>
void run_backward(const Grid& grid) {
    constexpr int kWidth = kTile / Vec;
    for (int64_t block = 0; block < grid.blocks() * grid.tiles(); ++block) {
        LeafSums shared;
        each_thread(block, kWidth, kLeaves,
                    [&](const Place& place) { backward_thread<R, T, Vec>(grid, place, shared); });
        each_thread(block, kWidth, kLeaves, [&](const Place& place) {
            add_leaves(grid, place, place.y * kWidth + place.x, shared);
        });
    }
}

void run_reduce(const Grid& grid, double* glog2t) {
    for (int64_t block = 0; block < grid.tiles(); ++block) {
        double lanes[kTile] = {};
        for (int64_t round = 0; round < rounds(grid); ++round) {
            SpanSums shared;
            each_thread(block, kTile, kSpans,
                        [&](const Place& place) { add_blocks(grid, place, round, shared); });
            each_thread(block, kTile, 1, [&](const Place& place) {
                lanes[place.x] = add_spans(lanes[place.x], place, shared);
            });
        }
        for (int half = grid.channels == 1 ? kTile / 2 : 0; half > 0; half /= 2) {
            each_thread(block, kTile, 1,
                        [&](const Place& place) { fold_lanes(place, half, lanes); });
        }
        each_thread(block, kTile, 1,
                    [&](const Place& place) { finish(grid, place, lanes, glog2t); });
    }
}

// A vector of floats as elements of the type.
template <Type T>
std::vector<Element<T>> elements(const std::vector<float>& values) {
    std::vector<Element<T>> narrow;
    for (const float value : values) narrow.push_back(narrowed<T>(value));
    return narrow;
}

// The same bits; any NaN of the type is as good as another.
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
    Grid grid{x.data(), g.data(), found.data(), n, f.data(), channels, q.low, q.high, nullptr};
    run_forward<R, T, Vec>(grid);
    CHECK(same_elements<T>(found, wanted));

    std::vector<double> wanted_sums(f.size());
    std::vector<double> sums(f.size(), -1);
    std::vector<double> partial(static_cast<size_t>(grid.blocks() * grid.columns()), -1);
    grid.partial = partial.data();
    quantize_gradients(x.data(), g.data(), wanted.data(), wanted_sums.data(), n, q, T);
    run_backward<R, T, Vec>(grid);
    run_reduce(grid, sums.data());
    CHECK(same_elements<T>(found, wanted));
    CHECK(same(sums, wanted_sums));

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

}  // namespace

void test_grid() {
    test_type<Type::float32>();
    test_type<Type::bfloat16>();
    test_type<Type::float16>();
    const std::vector<int32_t> ten(10, 3);
    test_one<Rounding::half_even, Type::float32, 4>((1 << 20) + 5000, {3});  // more than a span
    test_one<Rounding::half_even, Type::float32, 1>(10 * (32 * 32 * 33), ten);
}

}  // namespace qgraph
