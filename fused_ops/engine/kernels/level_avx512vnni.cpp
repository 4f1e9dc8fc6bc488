#include "engine/kernels/layer.h"

#ifdef __AVX512VNNI__
#include <immintrin.h>

namespace qgraph::engine::kernels {
namespace {
constexpr int kLanes = 4;
constexpr int kRows = 14;
constexpr Products kProducts{kNoPairs, false, false, false};
}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/vectors.h"

namespace qgraph::engine::kernels {
namespace {

inline Ints dot_bytes(Ints sums, Ints codes, Ints weights) {
    return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)codes, (__m512i)weights);
}

inline Ints dot_words(Ints sums, Ints codes, Ints weights) {
    return (Ints)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)codes, (__m512i)weights);
}

// Packs with saturation, within lanes.
inline Shorts pack_words(Ints a, Ints b) {
    return (Shorts)_mm512_packs_epi32((__m512i)a, (__m512i)b);
}
inline Bytes pack_unsigned(Shorts a, Shorts b) {
    return (Bytes)_mm512_packus_epi16((__m512i)a, (__m512i)b);
}
inline Bytes pack_signed(Shorts a, Shorts b) {
    return (Bytes)_mm512_packs_epi16((__m512i)a, (__m512i)b);
}

inline Shorts add_saturated(Shorts a, Shorts b) {
    return (Shorts)_mm512_adds_epi16((__m512i)a, (__m512i)b);
}
inline Shorts shift_right(Shorts v, int shift) {
    return (Shorts)_mm512_sra_epi16((__m512i)v, _mm_cvtsi32_si128(shift));
}

// v & ~bits where (t & rest) is 0, else v.
inline Ints clear_where_none(Ints v, Ints bits, Ints t, Ints rest) {
    const __mmask16 none = _mm512_testn_epi32_mask((__m512i)t, (__m512i)rest);
    return (Ints)_mm512_mask_andnot_epi32((__m512i)v, none, (__m512i)bits, (__m512i)v);
}
inline Shorts clear_where_none(Shorts v, Shorts bits, Shorts t, Shorts rest) {
    const __mmask32 none = _mm512_testn_epi16_mask((__m512i)t, (__m512i)rest);
    return (Shorts)_mm512_mask_sub_epi16((__m512i)v, none, (__m512i)v,
                                         _mm512_and_si512((__m512i)v, (__m512i)bits));
}

// Stores the first 4 * vectors bytes of each lane consecutively.
template <int vectors>
inline Bytes in_order(Bytes bytes) {
    if (vectors == 4) return bytes;
    const __m512i eights = _mm512_set_epi64(0, 0, 0, 0, 6, 4, 2, 0);
    const __m512i fours = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
    return vectors == 2 ? (Bytes)_mm512_maskz_permutexvar_epi64(0xff, eights, (__m512i)bytes)
                        : (Bytes)_mm512_maskz_permutexvar_epi32(0xffff, fours, (__m512i)bytes);
}

inline __mmask64 first_bytes(int64_t count) { return ~__mmask64{0} >> (64 - count); }

inline Bytes load_part(const char* from, int64_t count) {
    return (Bytes)_mm512_maskz_loadu_epi8(first_bytes(count), from);
}

inline void store_part(char* to, Bytes bytes, int64_t count) {
    _mm512_mask_storeu_epi8(to, first_bytes(count), (__m512i)bytes);
}

// Sum i of lane l of result j gets byte 16 * l + 4 * j + i of each of the four inputs.
inline void interleave(const Bytes* four, Ints* out) {
    const auto of = [&](int i) { return (__m512i)four[i]; };
    const __m512i low01 = _mm512_unpacklo_epi8(of(0), of(1));
    const __m512i low23 = _mm512_unpacklo_epi8(of(2), of(3));
    const __m512i high01 = _mm512_unpackhi_epi8(of(0), of(1));
    const __m512i high23 = _mm512_unpackhi_epi8(of(2), of(3));
    out[0] = (Ints)_mm512_unpacklo_epi16(low01, low23);
    out[1] = (Ints)_mm512_unpackhi_epi16(low01, low23);
    out[2] = (Ints)_mm512_unpacklo_epi16(high01, high23);
    out[3] = (Ints)_mm512_unpackhi_epi16(high01, high23);
}

}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/adjacent_body.h"
#include "engine/kernels/products_body.h"

namespace qgraph::engine::kernels {
namespace {

constexpr Dot dot_small = dot_bytes;  // for any weights

template <int M, int N>
void multiply_bytes(const Operands& o) {
    multiply<M, N, dot_bytes>(o);
}

}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/level_body.h"
#endif

namespace qgraph::engine::kernels {

const Kernels* avx512vnni_kernels() {
#ifdef __AVX512VNNI__
    return &kKernels;
#else
    return nullptr;
#endif
}

}  // namespace qgraph::engine::kernels
