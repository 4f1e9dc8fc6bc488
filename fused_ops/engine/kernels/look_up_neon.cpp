#include "engine/kernels/layer.h"

#if defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace qgraph::engine::kernels {

#if defined(__aarch64__) && defined(__ARM_NEON)
namespace {

// A table of 256 bytes is 16 registers. One instruction looks up in four of them; it leaves bytes
// whose index is 64 or more as they are.
void look_up(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t count) {
    const uint8x16x4_t first = vld1q_u8_x4(table), second = vld1q_u8_x4(table + 64),
                       third = vld1q_u8_x4(table + 128), fourth = vld1q_u8_x4(table + 192);
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const uint8x16_t codes = vld1q_u8(x + i);
        uint8x16_t found = vqtbl4q_u8(first, codes);
        found = vqtbx4q_u8(found, second, veorq_u8(codes, vdupq_n_u8(64)));
        found = vqtbx4q_u8(found, third, veorq_u8(codes, vdupq_n_u8(128)));
        found = vqtbx4q_u8(found, fourth, veorq_u8(codes, vdupq_n_u8(192)));
        vst1q_u8(y + i, found);
    }
    for (; i < count; ++i) y[i] = table[x[i]];
}

}  // namespace

LookUp neon_look_up() { return &look_up; }
#else
LookUp neon_look_up() { return nullptr; }
#endif

}  // namespace qgraph::engine::kernels
