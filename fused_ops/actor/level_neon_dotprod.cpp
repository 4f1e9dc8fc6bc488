#include "actor/kernels.h"

#ifdef __ARM_FEATURE_DOTPROD

#include <type_traits>

#include "actor/neon_body.h"

namespace qgraph::actor {
namespace {

struct Int8 {
    static constexpr int kMostSums = 16;
    using Codes = int8x16_t;
    using Weights = int8x16_t;
    struct Sum {
        int32x4_t sum;
    };
    static Weights weights(int8x16_t bytes) { return bytes; }
    template <int step>
    static Codes codes(int8x16_t row) {
        return row;
    }
    template <int step>
    static void add(Sum& to, Weights w, Codes row) {
        to.sum = vdotq_laneq_s32(to.sum, w, row, step);
    }
    static int32x4_t total(Sum of) { return of.sum; }
};

// Weights of 4 bits are multiplied in the high half of a byte, 16 times as large.
struct Int4 {
    static constexpr int kMostSums = 16;
    using Codes = int8x16_t;
    struct Weights {
        int8x16_t low, high;
    };
    using Sum = Int8::Sum;
    static Weights weights(int8x16_t both) {
        return {vshlq_n_s8(both, 4), vandq_s8(both, vdupq_n_s8(-16))};
    }
    template <int step>
    static Codes codes(int8x16_t row) {
        return row;
    }
    template <int step>
    static void add(Sum& to, const Weights& w, Codes row) {
        to.sum = vdotq_laneq_s32(to.sum, w.low, row, 2 * step);
        to.sum = vdotq_laneq_s32(to.sum, w.high, row, 2 * step + 1);
    }
    static int32x4_t total(Sum of) { return vshrq_n_s32(of.sum, 4); }
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

const Kernels* neon_dotprod_kernels() {
#ifdef __ARM_FEATURE_DOTPROD
    return &kKernels;
#else
    return nullptr;
#endif
}

}  // namespace qgraph::actor
