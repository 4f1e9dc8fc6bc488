#include <type_traits>

#include "actor/format.h"
#include "actor/tile.h"
#include "actor/vectors.h"

#ifdef __AVX2__

namespace qgraph::actor {
namespace {

constexpr bool kUnpacks = false;

template <Storage S>
int integer_rows(int64_t rows, int) {
    return rows >= 4 ? 4 : 1;
}

inline __m256i four_codes(const char* from) {
    int32_t four;
    __builtin_memcpy(&four, from, 4);
    return _mm256_set1_epi32(four);
}

// Bytes without a sign times bytes with one. By words, since sums of two products of 8 bits do not
// fit into 16; those of 4 bits do.
struct Int8 {
    struct Codes {
        __m256i even, odd;
    };
    struct Weights {
        __m256i even, odd;
    };
    static Codes codes(const char* x) {
        const __m256i four = four_codes(x);
        return {_mm256_and_si256(four, _mm256_set1_epi16(255)), _mm256_srli_epi16(four, 8)};
    }
    static Weights weights(__m256i w) {
        return {_mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), _mm256_srai_epi16(w, 8)};
    }
    static __m256i add(__m256i sum, Codes x, Weights w) {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x.even, w.even));
        return _mm256_add_epi32(sum, _mm256_madd_epi16(x.odd, w.odd));
    }
};

struct Int4 {
    struct Codes {
        __m256i low, high;
    };
    struct Weights {
        __m256i low, high;
    };
    static Codes codes(const char* x) { return {four_codes(x), four_codes(x + 4)}; }
    static Weights weights(__m256i w) {
        const __m256i half = _mm256_set1_epi8(15);
        const __m256i signs = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1));
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(w, 4), half);
        return {_mm256_shuffle_epi8(signs, _mm256_and_si256(w, half)),
                _mm256_shuffle_epi8(signs, high)};
    }
    static __m256i add(__m256i sum, Codes x, Weights w) {
        const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(x.low, w.low),
                                               _mm256_maddubs_epi16(x.high, w.high));
        return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
};

// M rows, N times 8 channels from `first` on.
template <class Form, int group, int M, int N>
void multiply_tile(const Tile& t, int64_t first) {
    __m256i sums[M][N];
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) sums[m][n] = _mm256_setzero_si256();
    }
    const char* w = t.weights + 4 * first;
    for (int64_t segment = 0; segment < t.segments; ++segment) {
        const char* x[M];
        for (int m = 0; m < M; ++m) x[m] = t.rows[m] + segment * t.segment;
        for (int64_t step = 0; step < t.steps; ++step, w += 4 * t.width) {
            typename Form::Codes codes[M];
            for (int m = 0; m < M; ++m) codes[m] = Form::codes(x[m] + step * group);
            for (int n = 0; n < N; ++n) {
                const auto* from = reinterpret_cast<const __m256i*>(w + 32 * n);
                const auto weights = Form::weights(_mm256_loadu_si256(from));
                for (int m = 0; m < M; ++m) {
                    sums[m][n] = Form::add(sums[m][n], codes[m], weights);
                }
            }
        }
    }
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            auto* to = reinterpret_cast<__m256i*>(t.sums + m * kPanel + first + 8 * n);
            _mm256_storeu_si256(to, sums[m][n]);
        }
    }
}

template <Storage S>
void multiply_integers(const Tile& t, int rows, int) {
    using Form = std::conditional_t<S == Storage::int8, Int8, Int4>;
    constexpr int group = S == Storage::int8 ? 4 : 8;
    if (rows == 4) {
        for (int64_t c = 0; c < t.width; c += 16) multiply_tile<Form, group, 4, 2>(t, c);
    } else if (t.width == kPanel) {
        multiply_tile<Form, group, 1, 8>(t, 0);
    } else {
        for (int64_t c = 0; c < t.width; c += 16) multiply_tile<Form, group, 1, 2>(t, c);
    }
}

}  // namespace
}  // namespace qgraph::actor

#include "actor/level_body.h"
#endif

namespace qgraph::actor {

const Kernels* avx2_kernels() {
#ifdef __AVX2__
    return &kKernels;
#else
    return nullptr;
#endif
}

}  // namespace qgraph::actor
