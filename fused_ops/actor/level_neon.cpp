#include "actor/kernels.h"

#if defined(__aarch64__) && defined(__ARM_NEON)

#include <type_traits>

#include "actor/neon_body.h"

namespace qgraph::actor {
namespace {

template <int four>  // bytes of a row for all channels
inline int8x16_t four_codes(int8x16_t row) {
    return vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(row), four));
}

// The sum of two products of bytes may exceed a word, so each word is added to sums of 32 bits.
struct Int8 {
    static constexpr int kMostSums = 8;
    using Codes = int8x16_t;
    using Weights = int8x16_t;
    struct Sum {
        int32x4_t first, second;  // of the first and of the last two channels
    };
    static Weights weights(int8x16_t bytes) { return bytes; }
    template <int step>
    static Codes codes(int8x16_t row) {
        return four_codes<step>(row);
    }
    template <int step>
    static void add(Sum& to, Weights w, Codes x) {
        to.first = vpadalq_s16(to.first, vmull_s8(vget_low_s8(w), vget_low_s8(x)));
        to.second = vpadalq_s16(to.second, vmull_high_s8(w, x));
    }
    static int32x4_t total(Sum of) { return vpaddq_s32(of.first, of.second); }
};

// A word holds the sum of four products with weights of 4 bits.
struct Int4 {
    static constexpr int kMostSums = 8;
    struct Codes {
        int8x16_t low, high;
    };
    struct Weights {
        int8x16_t low, high;
    };
    struct Sum {
        int32x4_t sum;
    };
    static Weights weights(int8x16_t both) {
        return {vshrq_n_s8(vshlq_n_s8(both, 4), 4), vshrq_n_s8(both, 4)};
    }
    template <int step>
    static Codes codes(int8x16_t row) {
        return {four_codes<2 * step>(row), four_codes<2 * step + 1>(row)};
    }
    template <int step>
    static void add(Sum& to, const Weights& w, const Codes& x) {
        int16x8_t first = vmull_s8(vget_low_s8(w.low), vget_low_s8(x.low));
        first = vmlal_s8(first, vget_low_s8(w.high), vget_low_s8(x.high));
        const int16x8_t last = vmlal_high_s8(vmull_high_s8(w.low, x.low), w.high, x.high);
        to.sum = vpadalq_s16(to.sum, vpaddq_s16(first, last));
    }
    static int32x4_t total(Sum of) { return of.sum; }
};

template <Storage S>
using Form = std::conditional_t<S == Storage::int8, Int8, Int4>;

template <Storage S>
int integer_rows(int64_t rows, int) {
    return rows_of_tile<Form<S>>(rows);
}

template <Storage S>
void multiply_integers(const Tile& t, int rows, int) {
    multiply_tiles<Form<S>, S == Storage::int8 ? 4 : 8>(t, rows);
}

}  // namespace
}  // namespace qgraph::actor

#include "actor/level_body.h"
#endif

namespace qgraph::actor {

const Kernels* neon_kernels() {
#if defined(__aarch64__) && defined(__ARM_NEON)
    return &kKernels;
#else
    return nullptr;
#endif
}

}  // namespace qgraph::actor
