#include "core/norm.h"

#include <algorithm>
#include <vector>

#include "core/blocks.h"
#include "core/parallel.h"
#include "core/quantize_tile.h"

namespace qgraph {
namespace {

// Calls the kernel on up to kBlock elements. Whole rows are processed in place; the last one is
// padded with the values of `pad` for x, and with zeros for g.
void run_rows(NormKernel kernel, NormRows rows, int64_t size, const float* pad) {
    const int64_t whole = size / kLanes * kLanes;
    rows.rows = whole / kLanes;
    if (whole > 0) kernel(rows);
    if (whole == size) return;
    rows.channel = (rows.channel + whole) % rows.channels;
    float x[kLanes], g[kLanes] = {}, out[kLanes];
    std::copy_n(pad + rows.channel, kLanes, x);
    std::copy_n(rows.x + whole, size - whole, x);
    if (rows.g != nullptr) std::copy_n(rows.g + whole, size - whole, g);
    float* to = rows.out == nullptr ? nullptr : rows.out + whole;
    rows.x = x;
    rows.g = g;
    rows.out = out;
    rows.rows = 1;
    kernel(rows);
    if (to != nullptr) std::copy_n(out, size - whole, to);
}

}  // namespace

void moments(const float* x, int64_t count, int64_t channels, const float* origin, double* mean,
             double* variance) {
    std::fill_n(mean, channels, 0.0);
    std::fill_n(variance, channels, 0.0);
    if (count == 0) return;
    const AlignedVector<float> centre = repeated(origin, channels);
    const int64_t blocks = (count + kBlock - 1) / kBlock;
    std::vector<double> first(static_cast<size_t>(blocks * channels)), second(first.size());
    parallel_tasks(blocks, count / kGrain, [&](int64_t block) {
        const int64_t at = block * kBlock;
        Slots sums(centre.size()), squares(centre.size());
        NormRows rows{x + at,   nullptr,       nullptr, 0,       at % channels,
                      channels, centre.data(), nullptr, nullptr, {sums.data(), squares.data()},
                      nullptr};
        run_rows(kernels().norm.moments, rows, std::min(kBlock, count - at), centre.data());
        fold_slots(sums, first.data() + block * channels, channels);
        fold_slots(squares, second.data() + block * channels, channels);
    });
    add_up_blocks(first, blocks, channels);
    add_up_blocks(second, blocks, channels);
    const auto rows = static_cast<double>(count / channels);
    for (int64_t i = 0; i < channels; ++i) {
        const double above = first[i] / rows;
        mean[i] = origin[i] + above;
        const double found = second[i] / rows - above * above;
        variance[i] = found < 0 ? 0 : found;  // NaN stays NaN
    }
}

void add_normalized(const float* g, const float* x, float* out, int64_t count, int64_t channels,
                    const Norm& norm) {
    if (count == 0) return;
    const AlignedVector<float> centre = repeated(norm.centre, channels);
    const AlignedVector<float> scale = repeated(norm.scale, channels);
    const AlignedVector<float> shift = repeated(norm.shift, channels);
    parallel_tasks((count + kBlock - 1) / kBlock, count / kGrain, [&](int64_t block) {
        const int64_t at = block * kBlock;
        NormRows rows{x + at,        g + at,       out + at,     0,  at % channels, channels,
                      centre.data(), scale.data(), shift.data(), {}, nullptr};
        run_rows(kernels().norm.add, rows, std::min(kBlock, count - at), centre.data());
    });
}

}  // namespace qgraph
