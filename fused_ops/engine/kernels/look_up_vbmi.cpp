#include "engine/kernels/layer.h"

#ifdef __AVX512VBMI__
#include <immintrin.h>
#endif

namespace qgraph::engine::kernels {

#ifdef __AVX512VBMI__
namespace {

// A table of 256 bytes is four registers; the lower seven bits of a code select a byte from two.
void look_up(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t count) {
    __m512i quarters[4];
    for (int i = 0; i < 4; ++i) quarters[i] = _mm512_loadu_si512(table + 64 * i);
    for (int64_t i = 0; i < count; i += 64) {
        const __mmask64 there = ~__mmask64{0} >> (64 - (count - i < 64 ? count - i : 64));
        const __m512i codes = _mm512_maskz_loadu_epi8(there, x + i);
        const __m512i low = _mm512_permutex2var_epi8(quarters[0], codes, quarters[1]);
        const __m512i high = _mm512_permutex2var_epi8(quarters[2], codes, quarters[3]);
        const __m512i found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), low, high);
        _mm512_mask_storeu_epi8(y + i, there, found);
    }
}

}  // namespace

LookUp vbmi_look_up() { return &look_up; }
#else
LookUp vbmi_look_up() { return nullptr; }
#endif

}  // namespace qgraph::engine::kernels
