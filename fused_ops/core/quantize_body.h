// The quantizer's kernels, compiled once for each instruction set: quantize_<set>.cpp says which
// by its compiler flags and includes this. All is private to that file, and nothing inline comes
// from elsewhere: the linker might keep the copy that this CPU can't run.

#include "core/quantize_tile.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace qgraph {
namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif
constexpr int kVectors = 2;  // side by side, so that one's latency hides behind the other's

template <int N>
struct Vector {
    typedef float Floats __attribute__((vector_size(4 * N)));
    typedef int32_t Mask __attribute__((vector_size(4 * N)));
    typedef double Doubles __attribute__((vector_size(8 * N)));
    typedef double UnalignedDoubles __attribute__((vector_size(8 * N), aligned(8), may_alias));
    typedef float Unaligned __attribute__((vector_size(4 * N), aligned(4), may_alias));
};
template <int N>
using Floats = typename Vector<N>::Floats;

template <int N>
inline Floats<N> load(const float* from) {
    return *reinterpret_cast<const typename Vector<N>::Unaligned*>(from);
}

template <int N, bool Stream>
inline void store(float* to, Floats<N> value) {
    if constexpr (Stream && N == 4) {
#if defined(__SSE2__)
        return _mm_stream_ps(to, value);
#endif
    } else if constexpr (Stream && N == 8) {
#if defined(__AVX__)
        return _mm256_stream_ps(to, value);
#endif
    } else if constexpr (Stream && N == 16) {
#if defined(__AVX512F__)
        return _mm512_stream_ps(to, value);
#endif
    }
    *reinterpret_cast<typename Vector<N>::Unaligned*>(to) = value;
}

inline void finish_streams() {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

// TensorFlow's threads flush subnormal numbers to zero; here they count.
class IeeeArithmetic {
  public:
#ifdef __SSE2__
    IeeeArithmetic() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~IeeeArithmetic() { _mm_setcsr(saved_); }

  private:
    unsigned saved_;
#else
    IeeeArithmetic() {}
#endif
};

template <int N>
inline Floats<N> absolute(Floats<N> v) {
    typedef typename Vector<N>::Mask Mask;
    return (Floats<N>)((Mask)v & 0x7fffffff);
}

// To the nearest, ties to even.
template <int N>
inline Floats<N> nearest(Floats<N> v) {
#ifdef __AVX512F__
    if constexpr (N == 16) return _mm512_maskz_roundscale_ps(0xffff, v, 0);
#endif
#ifdef __AVX__
    if constexpr (N == 8) {
        return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
#endif
    // From 2^23 on every number is whole, and adding 2^23 leaves no room for a fraction.
    const Floats<N> size = absolute<N>(v);
    const Floats<N> whole = (size + 8388608.0f) - 8388608.0f;
    return size < 8388608.0f ? (v < 0.0f ? -whole : whole) : v;
}

template <int N>
inline Floats<N> down(Floats<N> v) {
#ifdef __AVX512F__
    if constexpr (N == 16) return _mm512_maskz_roundscale_ps(0xffff, v, 1);
#endif
#ifdef __AVX__
    if constexpr (N == 8) return _mm256_round_ps(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#endif
    const Floats<N> whole = nearest<N>(v);
    return whole > v ? whole - 1.0f : whole;
}

template <int N>
inline Floats<N> nearest_up(Floats<N> v) {
    const Floats<N> whole = down<N>(v);
    return v - whole >= 0.5f ? whole + 1.0f : whole;
}

// v = x * 2^f, rounded to a whole number.
template <Rounding R, int N>
inline Floats<N> rounded(Floats<N> v, Floats<N> x) {
    if constexpr (R == Rounding::half_even) return nearest<N>(v);
    if constexpr (R == Rounding::half_up) return nearest_up<N>(v);
    if constexpr (R == Rounding::half_away) {
        const Floats<N> size = nearest_up<N>(absolute<N>(v));
        return v < 0.0f ? -size : size;
    }
    // The product of a negative number may have vanished.
    return ((v == 0.0f) & (x < 0.0f)) ? Floats<N>{} - 1.0f : down<N>(v);
}

template <int N>
struct Params {
    Floats<N> scale, step, low, high;

    Params(const Tile& tile, int64_t column)
        : scale(load<N>(tile.scales + column)),
          step(load<N>(tile.steps + column)),
          low(Floats<N>{} + tile.low),
          high(Floats<N>{} + tile.high) {}
};

template <Rounding R, int N, bool Stream>
inline void forward_vector(const Tile& tile, int64_t at, const Params<N>& q) {
    const Floats<N> x = load<N>(tile.x + at);
    const Floats<N> r = rounded<R, N>(x * q.scale, x);
    const Floats<N> code = r < q.low ? q.low : (r > q.high ? q.high : r);  // both false for NaN
    store<N, Stream>(tile.out + at, code * q.step + 0.0f);                 // + 0 turns -0 into +0
}

// Double sums for N floats, in as many vectors of the CPU as it takes.
template <int N>
struct Sums {
    static constexpr int kPart = N < kWidth / 2 ? N : (kWidth / 2);
    typedef typename Vector<kPart>::Doubles Doubles;
    Doubles parts[N / kPart] = {};

    // Exact products: 24 bits by 24 fit into 53.
    void add(Floats<N> a, Floats<N> b) {
        for (int i = 0; i < N / kPart; ++i) parts[i] += widened(a, i) * widened(b, i);
    }

    static Doubles widened(Floats<N> v, int i) {
#ifdef __AVX512F__
        if constexpr (N == 16) {
            __m256d half = _mm512_maskz_extractf64x4_pd(0xff, _mm512_castps_pd(v), 1);
            if (i == 0) __builtin_memcpy(&half, &v, sizeof(half));
            return _mm512_maskz_cvtps_pd(0xff, _mm256_castpd_ps(half));
        }
#endif
#ifdef __AVX__
        if constexpr (N == 8 && kPart == 4) {
            return _mm256_cvtps_pd(i == 0 ? _mm256_castps256_ps128(v)
                                          : _mm256_extractf128_ps(v, 1));
        }
#endif
        Doubles result{};
        for (int k = 0; k < kPart; ++k) result[k] = v[i * kPart + k];
        return result;
    }

    void add_to(double* sums) const {
        typedef typename Vector<kPart>::UnalignedDoubles To;
        for (int i = 0; i < N / kPart; ++i) reinterpret_cast<To*>(sums)[i] += parts[i];
    }
};

template <Rounding R, int N, bool Stream>
inline void backward_vector(const Tile& tile, int64_t at, const Params<N>& q, Sums<N>& sums) {
    const Floats<N> x = load<N>(tile.x + at);
    const Floats<N> g = load<N>(tile.g + at);
    const Floats<N> v = x * q.scale;
    const Floats<N> r = rounded<R, N>(v, x);
    const auto outside = (r < q.low) | (r > q.high);  // false for NaN
    const Floats<N> least = r < q.low ? q.low : r;
    const Floats<N> code = least > q.high ? q.high : least;
    const Floats<N> slope = outside ? code : r - v;
    store<N, Stream>(tile.out + at, outside ? Floats<N>{} : g);
    sums.add(g, slope);
}

// Up to kLeafRows rows of Count vectors of N columns. The tile is a copy, which no store changes.
template <Rounding R, bool Backward, int N, int Count, bool Stream>
inline void leaf(Tile tile, int64_t row, int64_t rows, int64_t column) {
    static_assert(Count <= 2);
    const Params<N> params[2] = {{tile, column}, {tile, column + (Count - 1) * N}};
    Sums<N> sums[Count];
    for (int64_t end = row + rows; row < end; ++row) {
        for (int k = 0; k < Count; ++k) {
            const int64_t at = row * tile.stride + column + k * N;
            if constexpr (Backward) {
                backward_vector<R, N, Stream>(tile, at, params[k], sums[k]);
            } else {
                forward_vector<R, N, Stream>(tile, at, params[k]);
            }
        }
    }
    if constexpr (Backward) {
        for (int k = 0; k < Count; ++k) sums[k].add_to(tile.sums + column + k * N);
    }
}

template <Rounding R, bool Backward, bool Stream>
inline void leaves(const Tile& tile) {
    constexpr int kStep = kVectors * kWidth;
    for (int64_t row = 0; row < tile.rows; row += kLeafRows) {
        const int64_t rows = tile.rows - row < kLeafRows ? tile.rows - row : kLeafRows;
        int64_t column = 0;
        for (; column + kStep <= tile.columns; column += kStep) {
            leaf<R, Backward, kWidth, kVectors, Stream>(tile, row, rows, column);
        }
        for (; column + 4 <= tile.columns; column += 4) {
            leaf<R, Backward, 4, 1, false>(tile, row, rows, column);
        }
        for (; column < tile.columns; ++column) {
            leaf<R, Backward, 1, 1, false>(tile, row, rows, column);
        }
    }
}

template <Rounding R, bool Backward>
void run(const Tile& tile) {
    const IeeeArithmetic ieee;
    if (!tile.stream) return leaves<R, Backward, false>(tile);
    leaves<R, Backward, true>(tile);
    finish_streams();
}

constexpr TileKernels kKernels{{run<Rounding::half_even, false>, run<Rounding::half_up, false>,
                                run<Rounding::half_away, false>, run<Rounding::floor, false>},
                               {run<Rounding::half_even, true>, run<Rounding::half_up, true>,
                                run<Rounding::half_away, true>, run<Rounding::floor, true>}};

}  // namespace
}  // namespace qgraph
