"""Macros and helpers of the generated file for instructions that only some processors have."""

from __future__ import annotations

TARGETS = """\
/* Instructions of Arm's vectors (MVE) and of its DSP extension, if the processor has them.
 * {NET}_PLAIN omits them. */
#if defined(__ARM_BIG_ENDIAN) && !defined({NET}_PLAIN)
#define {NET}_PLAIN
#endif
#if defined(__ARM_FEATURE_MVE) && !defined({NET}_PLAIN)
#define HAS_VECTORS
#define VECTOR_HELPER __attribute__((always_inline, unused))
#include <arm_mve.h>
#endif
#if defined(__ARM_FEATURE_SIMD32) && defined(__GNUC__) && !defined({NET}_PLAIN)
#define HAS_PAIRS
#define HELPER __attribute__((always_inline, unused))

/* Bytes 0 and 2, or 1 and 3, as two int16. */
static inline HELPER int32_t even_i8(int32_t v)
{{
    int32_t made;

    __asm__("sxtb16 %0, %1" : "=r"(made) : "r"(v));
    return made;
}}

static inline HELPER int32_t odd_i8(int32_t v)
{{
    int32_t made;

    __asm__("sxtb16 %0, %1, ror #8" : "=r"(made) : "r"(v));
    return made;
}}

static inline HELPER int32_t even_u8(int32_t v)
{{
    int32_t made;

    __asm__("uxtb16 %0, %1" : "=r"(made) : "r"(v));
    return made;
}}

static inline HELPER int32_t odd_u8(int32_t v)
{{
    int32_t made;

    __asm__("uxtb16 %0, %1, ror #8" : "=r"(made) : "r"(v));
    return made;
}}

/* sum + a.low * b.low + a.high * b.high */
static inline HELPER int32_t multiply_pair(int32_t a, int32_t b, int32_t sum)
{{
    int32_t made;

    __asm__("smlad %0, %1, %2, %3" : "=r"(made) : "r"(a), "r"(b), "r"(sum));
    return made;
}}

/* sum + a.low * b.low, or of the high halves */
static inline HELPER int32_t multiply_low(int32_t a, int32_t b, int32_t sum)
{{
    int32_t made;

    __asm__("smlabb %0, %1, %2, %3" : "=r"(made) : "r"(a), "r"(b), "r"(sum));
    return made;
}}

static inline HELPER int32_t multiply_high(int32_t a, int32_t b, int32_t sum)
{{
    int32_t made;

    __asm__("smlatt %0, %1, %2, %3" : "=r"(made) : "r"(a), "r"(b), "r"(sum));
    return made;
}}

/* The low halves of two words, or their high halves, as one word. */
static inline HELPER int32_t low_halves(int32_t a, int32_t b)
{{
    int32_t made;

    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(made) : "r"(a), "r"(b));
    return made;
}}

static inline HELPER int32_t high_halves(int32_t a, int32_t b)
{{
    int32_t made;

    __asm__("pkhtb %0, %2, %1, asr #16" : "=r"(made) : "r"(a), "r"(b));
    return made;
}}

static inline HELPER int32_t word_at(const void *from)
{{
    int32_t word;

    memcpy(&word, from, sizeof word);
    return word;
}}

#define PAIRS_OF_FOUR(codes, to, kind) \\
    do {{ \\
        const int32_t four = word_at(codes); \\
        const int32_t even = even_##kind(four), odd = odd_##kind(four); \\
        (to)[0] = low_halves(even, odd); \\
        (to)[2] = high_halves(even, odd); \\
    }} while (0)
#endif
#ifdef HAS_VECTORS
#define OFFSETS(array) array
#ifndef {NET}_TRACE
#define VECTOR_CHAINS
#endif
#else
#define OFFSETS(array) NULL
#endif
/* The first channel that is left for plain C. */
#ifdef VECTOR_CHAINS
#define AFTER_VECTORS(channels) channels
#else
#define AFTER_VECTORS(channels) 0
#endif
"""


def targets(net: str) -> str:
    """The text, which comes before all kernels."""
    return TARGETS.format(NET=net.upper())
