#include "engine/kernels/layer.h"

#ifdef __AVX2__
#include <immintrin.h>

namespace qgraph::engine::kernels {
namespace {
constexpr int kLanes = 2;
constexpr int kRows = 4;
constexpr Products kProducts = kAdjacentPairs;
}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/unmasked.h"

namespace qgraph::engine::kernels {
namespace {

inline Ints dot_words(Ints sums, Ints codes, Ints weights) {
    return plus(sums, (Ints)_mm256_madd_epi16((__m256i)codes, (__m256i)weights));
}

// Bytes are widened to words, two at a time, since sums of products of bytes do not fit into words.
inline Ints dot_bytes(Ints sums, Ints codes, Ints weights) {
    const auto w = (__m256i)weights;
    const Ints even = (Ints)_mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8);
    const Ints odd = (Ints)_mm256_srai_epi16(w, 8);
    const Ints even_codes = codes & 0x00ff00ff;
    const Ints odd_codes = (Ints)_mm256_srli_epi16((__m256i)codes, 8);
    return dot_words(dot_words(sums, even_codes, even), odd_codes, odd);
}

// The sum of the two products must fit into a word.
inline Shorts multiply_pairs(Ints codes, Ints weights) {
    return (Shorts)_mm256_maddubs_epi16((__m256i)codes, (__m256i)weights);
}

inline Ints add_pairs(Shorts words) {
    return (Ints)_mm256_madd_epi16((__m256i)words, _mm256_set1_epi16(1));
}

// Packs with saturation, within lanes.
inline Shorts pack_words(Ints a, Ints b) {
    return (Shorts)_mm256_packs_epi32((__m256i)a, (__m256i)b);
}
inline Bytes pack_unsigned(Shorts a, Shorts b) {
    return (Bytes)_mm256_packus_epi16((__m256i)a, (__m256i)b);
}
inline Bytes pack_signed(Shorts a, Shorts b) {
    return (Bytes)_mm256_packs_epi16((__m256i)a, (__m256i)b);
}

inline Shorts add_saturated(Shorts a, Shorts b) {
    return (Shorts)_mm256_adds_epi16((__m256i)a, (__m256i)b);
}
inline Shorts shift_right(Shorts v, int shift) {
    return (Shorts)_mm256_sra_epi16((__m256i)v, _mm_cvtsi32_si128(shift));
}

// Stores the first 4 * vectors bytes of each lane consecutively.
template <int vectors>
inline Bytes in_order(Bytes bytes) {
    if (vectors == 4) return bytes;
    const __m256i fours = _mm256_set_epi32(0, 0, 0, 0, 0, 0, 4, 0);
    return vectors == 2 ? (Bytes)_mm256_permute4x64_epi64((__m256i)bytes, 0x08)
                        : (Bytes)_mm256_permutevar8x32_epi32((__m256i)bytes, fours);
}

// Sum i of lane l of result j gets byte 16 * l + 4 * j + i of each of the four inputs.
inline void interleave(const Bytes* four, Ints* out) {
    const auto of = [&](int i) { return (__m256i)four[i]; };
    const __m256i low01 = _mm256_unpacklo_epi8(of(0), of(1));
    const __m256i low23 = _mm256_unpacklo_epi8(of(2), of(3));
    const __m256i high01 = _mm256_unpackhi_epi8(of(0), of(1));
    const __m256i high23 = _mm256_unpackhi_epi8(of(2), of(3));
    out[0] = (Ints)_mm256_unpacklo_epi16(low01, low23);
    out[1] = (Ints)_mm256_unpackhi_epi16(low01, low23);
    out[2] = (Ints)_mm256_unpacklo_epi16(high01, high23);
    out[3] = (Ints)_mm256_unpackhi_epi16(high01, high23);
}

}  // namespace
}  // namespace qgraph::engine::kernels

#include "engine/kernels/adjacent_body.h"
#include "engine/kernels/byte_pairs_body.h"
#include "engine/kernels/level_body.h"
#endif

namespace qgraph::engine::kernels {

const Kernels* avx2_kernels() {
#ifdef __AVX2__
    return &kKernels;
#else
    return nullptr;
#endif
}

}  // namespace qgraph::engine::kernels
