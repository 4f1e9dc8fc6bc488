#include "engine/kernels/layer.h"

#ifdef __AVX512VNNI__
#include <immintrin.h>

namespace qgraph::engine::kernels {
namespace {
constexpr int kLanes = 4;
constexpr int kRows = 14;
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

inline __m512i pack_shorts(Ints a, Ints b) { return _mm512_packs_epi32((__m512i)a, (__m512i)b); }

inline Bytes pack_unsigned(Ints a, Ints b, Ints c, Ints d) {
    return (Bytes)_mm512_packus_epi16(pack_shorts(a, b), pack_shorts(c, d));
}

inline Bytes pack_signed(Ints a, Ints b, Ints c, Ints d) {
    return (Bytes)_mm512_packs_epi16(pack_shorts(a, b), pack_shorts(c, d));
}

inline __mmask64 first_bytes(int64_t count) { return ~__mmask64{0} >> (64 - count); }

inline Bytes load_part(const char* from, int64_t count) {
    return (Bytes)_mm512_maskz_loadu_epi8(first_bytes(count), from);
}

inline void store_part(char* to, Bytes bytes, int64_t count) {
    _mm512_mask_storeu_epi8(to, first_bytes(count), (__m512i)bytes);
}

// Sum i of lane l of result j gets byte 16 * l + 4 * j + i of each of the four.
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
