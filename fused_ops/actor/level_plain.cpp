#include "actor/format.h"
#include "actor/tile.h"
#include "actor/vectors.h"

namespace qgraph::actor {
namespace {

constexpr int kCodesMinus = 0;  // products are those of unsigned codes

template <Storage S>
int integer_rows(int64_t, int) {
    return 1;
}

// The low and the high half of a byte as signed 4-bit integers.
inline int low_half(int8_t byte) {
    return static_cast<int8_t>(static_cast<uint8_t>(byte) << 4) >> 4;
}
inline int high_half(int8_t byte) { return byte >> 4; }

template <Storage S>
void multiply_integers(const Tile& t, int, int) {
    constexpr int64_t group = S == Storage::int8 ? 4 : 8;
    int32_t sums[kPanel] = {};
    const auto* w = reinterpret_cast<const int8_t*>(t.weights);
    for (int64_t segment = 0; segment < t.segments; ++segment) {
        const auto* x = reinterpret_cast<const uint8_t*>(t.rows[0] + segment * t.segment);
        for (int64_t step = 0; step < t.steps; ++step, x += group, w += 4 * t.width) {
            for (int64_t c = 0; c < t.width; ++c) {
                for (int i = 0; i < 4; ++i) {
                    const int8_t byte = w[4 * c + i];
                    sums[c] += S == Storage::int8
                                   ? x[i] * byte
                                   : x[i] * low_half(byte) + x[4 + i] * high_half(byte);
                }
            }
        }
    }
    for (int64_t c = 0; c < t.width; ++c) t.sums[c] = sums[c];
}

}  // namespace
}  // namespace qgraph::actor

#include "actor/level_body.h"

namespace qgraph::actor {

const Kernels* plain_kernels() { return &kKernels; }

}  // namespace qgraph::actor
