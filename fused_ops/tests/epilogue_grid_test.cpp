// Tests that the epilogue's CUDA kernels, run on the CPU thread by thread, give the same bits as
// the CPU's kernels.

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/epilogue.h"
#include "tests/check.h"
#include "tests/emulated/cuda_epilogue.h"

namespace qgraph {
namespace {

// The gradients of channels and of both thresholds, joined into one vector.
std::vector<double> in_a_row(const EpilogueSums& sums, int64_t channels) {
    std::vector<double> all{sums.inner, sums.outer};
    all.insert(all.end(), sums.bias, sums.bias + channels);
    if (sums.high != nullptr) all.insert(all.end(), sums.high, sums.high + channels);
    return all;
}

template <Rounding R, Activation A>
void test_one(const std::vector<float>& x, const std::vector<float>& g, int64_t channels,
              bool open = false) {
    const auto count = static_cast<int64_t>(x.size());
    const auto size = static_cast<size_t>(channels);
    std::vector<float> bias = samples(size, 3);
    for (float& b : bias) b = std::nearbyint(b * 64) / 64;
    std::vector<float> high(size, 1.5F);  // some codes equal it, others exceed it
    high[size / 2] = 0;
    const Epilogue e{{6, -128, 127},
                     {3, A == Activation::none ? -8.0F : 0.0F, 7},
                     R,
                     A,
                     channels,
                     bias.data(),
                     high.data(),
                     open};
    std::vector<float> wanted(x.size());
    std::vector<float> found(x.size());
    epilogue(x.data(), wanted.data(), count, e);

    const float inner = 2;
    const float outer = 0.75F;
    const auto kind = A == Activation::clip ? (open ? Kind::relu6 : Kind::clip)
                                            : static_cast<Kind>(static_cast<int>(A));
    const qgraph_cuda_epilogue on_gpu{{&inner, 8, e.inner.low, e.inner.high},
                                      {&outer, 4, e.outer.low, e.outer.high},
                                      bias.data(),
                                      high.data(),
                                      channels,
                                      static_cast<int32_t>(R),
                                      static_cast<int32_t>(kind)};
    EpilogueGrid grid = grid_of(on_gpu, x.data(), nullptr, found.data(), count, nullptr);
    run_epilogue<R, A, 1>(grid);
    CHECK(same(found, wanted));
    if (channels % 4 == 0) {
        run_epilogue<R, A, 4>(grid);
        CHECK(same(found, wanted));
    }

    std::vector<double> bias_sums(size), high_sums(size);
    const bool clips = A == Activation::clip;
    EpilogueSums sums{0, 0, bias_sums.data(), clips ? high_sums.data() : nullptr};
    epilogue_gradients(x.data(), g.data(), wanted.data(), sums, count, e);
    const std::vector<double> wanted_sums = in_a_row(sums, channels);
    std::fill(bias_sums.begin(), bias_sums.end(), -1);
    std::fill(high_sums.begin(), high_sums.end(), -1);
    sums.inner = sums.outer = -1;
    const auto bytes = static_cast<size_t>(workspace_of(count, channels, kind));
    std::vector<double> workspace(bytes / sizeof(double) + 1, NAN);
    found = g;  // in place
    grid = grid_of(on_gpu, x.data(), found.data(), found.data(), count, workspace.data());
    run_epilogue_gradients<R, A>(grid);
    run_reduce(reductions_of(grid, {nullptr, &sums.inner, &sums.outer, sums.bias, sums.high, 0}));
    CHECK(same(found, wanted));
    CHECK(same(in_a_row(sums, channels), wanted_sums));
    CHECK(workspace.back() != workspace.back());  // the NaN after the end is unchanged
}

template <Rounding R>
void test_shape(size_t rows, size_t channels) {
    const std::vector<float> x = with_extremes(samples(rows * channels, 1));
    const std::vector<float> g = samples(rows * channels, 2);
    const auto c = static_cast<int64_t>(channels);
    test_one<R, Activation::none>(x, g, c);
    test_one<R, Activation::relu>(x, g, c);
    test_one<R, Activation::clip>(x, g, c);
    test_one<R, Activation::clip>(x, g, c, true);
}

template <Rounding R>
void test_rounding() {
    for (const size_t rows : {0, 1, 5, 3000}) test_shape<R>(rows, 12);
}

}  // namespace

void test_epilogue_grid() {
    test_rounding<Rounding::half_even>();
    test_rounding<Rounding::half_up>();
    test_rounding<Rounding::half_away>();
    test_rounding<Rounding::floor>();
    test_rounding<Rounding::double_>();
    for (const size_t channels : {1, 2, 3, 8, 31, 32, 33, 63, 64, 100}) {
        test_shape<Rounding::half_even>(70'000 / channels, channels);
    }
    test_shape<Rounding::half_even>(70, 1100);
    test_shape<Rounding::half_even>(3, 40'000);    // more channels than a block has elements
    test_shape<Rounding::half_even>(100'000, 11);  // more than a span
    std::vector<float> diverged = samples(1200, 4);
    diverged[500] = NAN;
    test_one<Rounding::half_even, Activation::clip>(diverged, samples(1200, 5), 12);
    test_one<Rounding::half_even, Activation::relu>(samples(1200, 5), diverged, 12);
}

}  // namespace qgraph
