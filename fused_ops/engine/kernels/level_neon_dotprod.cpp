#include "engine/kernels/layer.h"

#ifdef __ARM_FEATURE_DOTPROD

namespace qgraph::engine::kernels {
namespace {
constexpr int kLanes = 1;
constexpr int kRows = 8;
constexpr Products kProducts{kNoPairs, true, false, true};
}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/neon_body.h"

namespace qgraph::engine::kernels {
namespace {

inline void interleave_bytes(const Bytes* four, Ints* out) { interleave(four, out); }

// The weights of three taps and one of padding, moved by one tap: those of the line below.
inline Ints moved_down(Ints weights) { return (Ints)((Words)weights << 8); }

inline Ints dot_bytes(Ints sums, Ints codes, Ints weights) {
    return (Ints)vdotq_s32((int32x4_t)sums, (int8x16_t)weights, (int8x16_t)codes);
}
constexpr Dot dot_small = dot_bytes;  // for any weights

struct ByteLanes {
    template <int step>  // of the four whose codes are in `row`
    static Ints add(Ints sums, Ints weights, Ints row) {
        return (Ints)vdotq_laneq_s32((int32x4_t)sums, (int8x16_t)weights, (int8x16_t)row, step);
    }
    static Ints add_one(Ints sums, Ints weights, const uint8_t* codes) {
        return dot_bytes(sums, load_four(codes), weights);
    }
};

template <int M, int N>
void multiply_bytes(const Operands& o) {
    multiply_lanes<M, N, ByteLanes>(o);
}

}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/level_body.h"
#endif

namespace qgraph::engine::kernels {

const Kernels* neon_dotprod_kernels() {
#ifdef __ARM_FEATURE_DOTPROD
    return &kKernels;
#else
    return nullptr;
#endif
}

}  // namespace qgraph::engine::kernels
