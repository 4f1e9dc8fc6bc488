// The kernels of codes in bytes, written with the vectors of one instruction set.
#pragma once

#include "core/codes_span.h"
#include "core/vectors.h"

namespace qgraph {
namespace {

typedef int32_t CodeInts __attribute__((vector_size(4 * kWidth)));
typedef int8_t SignedBytes __attribute__((vector_size(kWidth)));
typedef uint8_t CodeBytes __attribute__((vector_size(kWidth)));
typedef uint8_t CodeBytesAt __attribute__((vector_size(kWidth), aligned(1), may_alias));

// The codes of values. NaN becomes the lowest code.
inline CodeBytes codes_of(Floats<kWidth> x, float scale, float low, float high) {
    const Floats<kWidth> zero{};
    const Floats<kWidth> v = x * scale;
    const Floats<kWidth> below = v > high ? zero + high : v;
    const Floats<kWidth> code = below >= low ? below : zero + low;
    return __builtin_convertvector(__builtin_convertvector(code, CodeInts), CodeBytes);
}

inline void pack_span(const PackSpan& given) {
    const PackSpan s = given;
    const IeeeArithmetic ieee;
    for (int64_t i = 0; i < s.count; i += kWidth) {
        *reinterpret_cast<CodeBytesAt*>(s.codes + i) =
            codes_of(load<Type::float32, kWidth>(s.x, i), s.scale, s.low, s.high);
    }
}

template <bool Signed, bool Stream>
inline void unpack_as(const UnpackSpan& given) {
    const UnpackSpan s = given;
    for (int64_t i = 0; i < s.count; i += kWidth) {
        const CodeBytes bytes = *reinterpret_cast<const CodeBytesAt*>(s.codes + i);
        CodeInts codes;
        if constexpr (Signed) {
            codes = __builtin_convertvector((SignedBytes)bytes, CodeInts);
        } else {
            codes = __builtin_convertvector(bytes, CodeInts);
        }
        store<Type::float32, kWidth, Stream>(
            s.x, i, __builtin_convertvector(codes, Floats<kWidth>) * s.step);
    }
    if (Stream) finish_streams();
}

inline void unpack_span(const UnpackSpan& s) {
    const IeeeArithmetic ieee;
    if (s.is_signed) {
        s.stream ? unpack_as<true, true>(s) : unpack_as<true, false>(s);
    } else {
        s.stream ? unpack_as<false, true>(s) : unpack_as<false, false>(s);
    }
}

constexpr CodeKernels kCodeKernels{pack_span, unpack_span};

}  // namespace
}  // namespace qgraph
