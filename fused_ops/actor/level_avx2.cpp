#include <type_traits>

#include "actor/format.h"
#include "actor/tile.h"
#include "actor/vectors.h"
#include "core/unrolled.h"

#ifdef __AVX2__

namespace qgraph::actor {
namespace {

constexpr int kCodesMinus = 0;  // products are those of unsigned codes

template <Storage S>
int integer_rows(int64_t rows, int) {
    return rows >= 4 ? 4 : 1;
}

inline __m256i four_codes(const char* from) {
    int32_t four;
    __builtin_memcpy(&four, from, 4);
    return _mm256_set1_epi32(four);
}

// Unsigned bytes times signed bytes. Codes of 8 bits are widened to words, since the sum of two
// products does not fit into 16 bits; with 4-bit weights it does.
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

// M rows by N times 8 channels, beginning at channel `first`.
template <class Form, int group, int M, int N>
void multiply_tile(const Tile& t, int64_t first) {
    __m256i sums[M][N];
    unrolled<M * N>([&](auto i) { sums[i / N][i % N] = _mm256_setzero_si256(); });
    const char* w = t.weights + 4 * first;
    for (int64_t segment = 0; segment < t.segments; ++segment) {
        const char* x[M];
        for (int m = 0; m < M; ++m) x[m] = t.rows[m] + segment * t.segment;
        for (int64_t step = 0; step < t.steps; ++step, w += 4 * t.width) {
            typename Form::Codes codes[M];
            unrolled<M>([&](auto m) { codes[m] = Form::codes(x[m] + step * group); });
            unrolled<N>([&](auto n) {
                const auto* from = reinterpret_cast<const __m256i*>(w + 32 * n);
                const auto weights = Form::weights(_mm256_loadu_si256(from));
                unrolled<M>([&](auto m) { sums[m][n] = Form::add(sums[m][n], codes[m], weights); });
            });
        }
    }
    unrolled<M * N>([&](auto i) {
        auto* to = reinterpret_cast<__m256i*>(t.sums + i / N * kPanel + first + i % N * 8);
        _mm256_storeu_si256(to, sums[i / N][i % N]);
    });
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

// M rows of words, `row` bytes apart, times 16 channels.
template <int M>
void multiply_words(const char* x, int64_t row, const char* w, int64_t steps, int32_t* sums) {
    __m256i low[M], high[M];
    unrolled<M>([&](auto m) { low[m] = high[m] = _mm256_setzero_si256(); });
    for (int64_t step = 0; step < 2 * steps; ++step, x += 4, w += 64) {
        const auto* weights = reinterpret_cast<const __m256i*>(w);
        const __m256i first = _mm256_loadu_si256(weights);
        const __m256i second = _mm256_loadu_si256(weights + 1);
        unrolled<M>([&](auto m) {
            const __m256i codes = four_codes(x + m * row);
            low[m] = _mm256_add_epi32(low[m], _mm256_madd_epi16(codes, first));
            high[m] = _mm256_add_epi32(high[m], _mm256_madd_epi16(codes, second));
        });
    }
    unrolled<M>([&](auto m) {
        auto* to = reinterpret_cast<__m256i*>(sums + m * kPanel);
        _mm256_storeu_si256(to, low[m]);
        _mm256_storeu_si256(to + 1, high[m]);
    });
}

// Bytes widened to words; one instruction multiplies and adds two. In each group of four codes,
// the two at even places come first, then the two at odd places. Weights of 16 channels are stored
// together, and memory for codes follows the weights of the panel.
template <>
struct Unpacked<Storage::int8> {
    static constexpr bool kPays = true;
    static constexpr int kMost = 4;        // rows whose sums fit into registers
    static constexpr int64_t kSlack = 32;  // bytes that a row's last vector may write after it

    static bool pays(int64_t, int64_t rows) { return rows >= 16; }

    static int64_t bytes(int64_t values) { return 2 * (kPanel + kMost) * values + kSlack; }

    static void unpack(Tile& tile, char* scratch) {
        const int64_t steps = tile.segments * tile.steps;
        const char* from = tile.weights;
        tile.weights = scratch;
        for (int64_t step = 0; step < steps; ++step) {
            for (int64_t c = 0; c < tile.width; c += 8, from += 32) {
                const auto words =
                    Int8::weights(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
                char* to = scratch + 8 * (c / 16 * 16 * steps + 16 * step) + c % 16 * 4;
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words.even);
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 64), words.odd);
            }
        }
    }

    static int rows(int64_t rows, int) { return static_cast<int>(rows < kMost ? rows : kMost); }

    static void multiply(const Tile& tile, int rows, int, char* scratch) {
        constexpr decltype(&multiply_words<1>) with_rows[] = {
            nullptr, &multiply_words<1>, &multiply_words<2>, &multiply_words<3>,
            &multiply_words<kMost>};
        const int64_t steps = tile.segments * tile.steps, row = 8 * steps;
        char* codes = scratch + 8 * tile.width * steps;
        for (int i = 0; i < rows; ++i) widen(tile, tile.rows[i], codes + i * row);
        for (int64_t c = 0; c < tile.width; c += 16) {
            with_rows[rows](codes, row, tile.weights + 8 * c * steps, steps, tile.sums + c);
        }
    }

  private:
    static void widen(const Tile& tile, const char* x, char* to) {
        for (int64_t segment = 0; segment < tile.segments; ++segment) {
            for (int64_t step = 0; step < tile.steps; step += 4) {
                const auto* from = reinterpret_cast<const __m128i*>(x + 4 * step);
                const __m128i four = _mm_loadu_si128(from);
                const __m128i even = _mm_and_si128(four, _mm_set1_epi16(255));
                const __m128i odd = _mm_srli_epi16(four, 8);
                auto* words = reinterpret_cast<__m128i*>(to + 8 * step);
                _mm_storeu_si128(words, _mm_unpacklo_epi32(even, odd));
                _mm_storeu_si128(words + 1, _mm_unpackhi_epi32(even, odd));
            }
            x += tile.segment;
            to += 8 * tile.steps;
        }
    }
};

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
