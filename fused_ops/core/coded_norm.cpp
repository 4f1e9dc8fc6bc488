#include "core/coded_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/blocks.h"
#include "core/parallel.h"
#include "core/quantize_tile.h"

namespace qgraph {
namespace {

// The codes of a tensor, unpacked a leaf at a time, so that the values stay in the first-level
// cache.
class Unpacked {
  public:
    Unpacked(const uint8_t* codes, const ByteCodes& form)
        : codes_(codes), step_(std::ldexp(1.0F, -form.f)), signed_(form.is_signed) {}

    // Calls the kernel on up to kBlock elements from `begin` on. rows: without x, at this element;
    // where its `out` is null, only sums are wanted. The last row is padded: x with the values of
    // `pad`, g with zeros.
    void run(NormKernel kernel, NormRows rows, int64_t begin, int64_t size,
             const float* pad) const {
        alignas(64) float x[kLeaf], unused[kLeaf];
        const float* g = rows.g;
        float* out = rows.out;
        for (int64_t at = 0; at < size; at += kLeaf) {
            const int64_t part = std::min(kLeaf, size - at);
            const int64_t whole = part / kLanes * kLanes;
            unpack(codes_ + begin + at, x, whole);
            rows.x = x;
            rows.g = g == nullptr ? nullptr : g + at;
            rows.out = out == nullptr ? unused : out + at;
            rows.channel = (begin + at) % rows.channels;
            rows.rows = whole / kLanes;
            if (whole > 0) kernel(rows);
            if (whole < part) run_last(kernel, rows, begin + at, whole, part - whole, pad);
        }
    }

  private:
    void unpack(const uint8_t* codes, float* x, int64_t count) const {
        kernels().codes.unpack({codes, x, count, step_, signed_, false});
    }

    void run_last(NormKernel kernel, NormRows rows, int64_t leaf, int64_t at, int64_t rest,
                  const float* pad) const {
        float x[kLanes], g[kLanes] = {}, out[kLanes];
        uint8_t codes[kLanes] = {};
        rows.channel = (leaf + at) % rows.channels;
        std::copy_n(codes_ + leaf + at, rest, codes);
        unpack(codes, x, kLanes);
        std::copy(pad + rows.channel + rest, pad + rows.channel + kLanes, x + rest);
        if (rows.g != nullptr) std::copy_n(rows.g + at, rest, g);
        float* to = rows.out + at;
        rows.x = x;
        rows.g = g;
        rows.out = out;
        rows.rows = 1;
        kernel(rows);
        std::copy_n(out, rest, to);
    }

    const uint8_t* codes_;
    float step_;
    bool signed_;
};

// Calls body(block, begin, size) for each block of a tensor.
template <class Body>
void each_block(int64_t count, const Body& body) {
    parallel_tasks((count + kBlock - 1) / kBlock, count / kGrain, [&](int64_t block) {
        body(block, block * kBlock, std::min(kBlock, count - block * kBlock));
    });
}

}  // namespace

void normalize_codes(const uint8_t* codes, const ByteCodes& form, float* out, int64_t count,
                     int64_t channels, const Norm& norm) {
    if (count == 0) return;
    const AlignedVector<float> centre = repeated(norm.centre, channels);
    const AlignedVector<float> scale = repeated(norm.scale, channels);
    const AlignedVector<float> shift = repeated(norm.shift, channels);
    const Unpacked unpacked(codes, form);
    each_block(count, [&](int64_t, int64_t begin, int64_t size) {
        const NormRows rows{nullptr,       nullptr,      out + begin,  0,  0,      channels,
                            centre.data(), scale.data(), shift.data(), {}, nullptr};
        unpacked.run(kernels().norm.normalize, rows, begin, size, centre.data());
    });
}

void normalized_codes_gradient(const float* g, const uint8_t* codes, const ByteCodes& form,
                               float* out, int64_t count, int64_t channels,
                               const BatchStatistics& batch) {
    if (count == 0) return;
    const AlignedVector<float> centre = repeated(batch.mean, channels);
    const AlignedVector<float> factor = repeated(batch.scale, channels);
    const Unpacked unpacked(codes, form);
    const int64_t blocks = (count + kBlock - 1) / kBlock;
    std::vector<double> products(static_cast<size_t>(blocks * channels)), sums(products.size());
    each_block(count, [&](int64_t block, int64_t begin, int64_t size) {
        Slots first(centre.size()), second(centre.size());
        const NormRows rows{
            nullptr,  g + begin,     nullptr,       0,       0,
            channels, centre.data(), factor.data(), nullptr, {first.data(), second.data()},
            nullptr};
        unpacked.run(kernels().norm.gradients, rows, begin, size, centre.data());
        fold_slots(first, products.data() + block * channels, channels);
        fold_slots(second, sums.data() + block * channels, channels);
    });
    add_up_blocks(products, blocks, channels);
    add_up_blocks(sums, blocks, channels);
    const auto rows_of_channel = static_cast<double>(count / channels);
    std::vector<float> a(static_cast<size_t>(channels)), b(a.size());
    for (int64_t i = 0; i < channels; ++i) {
        a[i] = static_cast<float>(2 * static_cast<double>(batch.slope[i]) * products[i] /
                                  rows_of_channel);
        b[i] = static_cast<float>(-static_cast<double>(batch.scale[i]) * sums[i] / rows_of_channel);
    }
    const AlignedVector<float> scale = repeated(a.data(), channels);
    const AlignedVector<float> shift = repeated(b.data(), channels);
    each_block(count, [&](int64_t, int64_t begin, int64_t size) {
        const NormRows rows{
            nullptr,      g + begin, out + begin,  0, 0, channels, centre.data(), scale.data(),
            shift.data(), {},        factor.data()};
        unpacked.run(kernels().norm.add_scaled, rows, begin, size, centre.data());
    });
}

}  // namespace qgraph
