#include "core/codes.h"

#include <algorithm>
#include <cmath>

#include "core/blocks.h"
#include "core/parallel.h"
#include "core/quantize_tile.h"

namespace qgraph {
namespace {

// Calls body(begin, count) for parts of a tensor. All but the last are multiples of kLanes.
template <class Body>
void each_part(int64_t count, const Body& body) {
    parallel_tasks((count + kBlock - 1) / kBlock, count / kGrain, [&](int64_t block) {
        body(block * kBlock, std::min(kBlock, count - block * kBlock));
    });
}

}  // namespace

void pack_codes(const float* x, uint8_t* codes, int64_t count, const ByteCodes& form) {
    const int32_t positive = form.bits - (form.is_signed ? 1 : 0);
    const float low = form.is_signed ? -std::ldexp(1.0F, positive) : 0.0F;
    const float high = std::ldexp(1.0F, positive) - 1.0F;
    const float scale = std::ldexp(1.0F, form.f);
    each_part(count, [&](int64_t at, int64_t size) {
        const int64_t whole = size / kLanes * kLanes;
        const auto kernel = kernels().codes.pack;
        kernel({x + at, codes + at, whole, scale, low, high});
        if (whole == size) return;
        float padded[kLanes] = {};
        uint8_t packed[kLanes];
        std::copy_n(x + at + whole, size - whole, padded);
        kernel({padded, packed, kLanes, scale, low, high});
        std::copy_n(packed, size - whole, codes + at + whole);
    });
}

void unpack_codes(const uint8_t* codes, float* x, int64_t count, const ByteCodes& form) {
    const float step = std::ldexp(1.0F, -form.f);
    const bool stream = streams(x, count * static_cast<int64_t>(sizeof(float)));
    each_part(count, [&](int64_t at, int64_t size) {
        const int64_t whole = size / kLanes * kLanes;
        const auto kernel = kernels().codes.unpack;
        kernel({codes + at, x + at, whole, step, form.is_signed, stream});
        if (whole == size) return;
        uint8_t padded[kLanes] = {};
        float unpacked[kLanes];
        std::copy_n(codes + at + whole, size - whole, padded);
        kernel({padded, unpacked, kLanes, step, form.is_signed, false});
        std::copy_n(unpacked, size - whole, x + at + whole);
    });
}

}  // namespace qgraph
