"""Helpers for packed weights that multiply two codes by an instruction (Arm's DSP extension).

{x} is the type of the codes, {s} its short name.
"""

from __future__ import annotations

PAIRS = """\
/* Codes as pairs of int16, of one of two pixels, whose pairs alternate. */
static void pairs_{s}(const {x} *restrict codes, int32_t *restrict pairs, int32_t depth)
{{
    int32_t k = 0;

{body}
    for (; k < depth; k += 2, pairs += 2) {{
        const uint32_t next = k + 1 < depth ? (uint32_t)codes[k + 1] << 16 : 0;

        *pairs = (int32_t)(((uint32_t)codes[k] & 0xffff) | next);
    }}
}}
"""
PAIRS_OF_BYTES = """\
    for (; k + 8 <= depth; k += 8, pairs += 8) {{
        PAIRS_OF_FOUR(codes + k, pairs, {s});
        PAIRS_OF_FOUR(codes + k + 4, pairs + 4, {s});
    }}
    for (; k + 4 <= depth; k += 4, pairs += 4)
        PAIRS_OF_FOUR(codes + k, pairs, {s});"""
PAIRS_OF_WORDS = """\
    for (; k + 2 <= depth; k += 2, pairs += 2)
        *pairs = word_at(codes + k);"""
MULTIPLY_PAIRS = """\
/* Statements in assembler, in this order, because compilers otherwise load everything first, and
 * then run out of registers. */
#define LOAD_TWO(x, y, from, at) \
    __asm__ volatile("ldrd %0, %1, [%2, %3]" \
        : "=&r"(x), "=&r"(y) : "r"(from), "i"(at), "m"(*(const int32_t (*)[2])((from) + (at) / 4)))
#define LOAD_ONE(w, from, at) \
    __asm__ volatile("ldr %0, [%1, %2]" \
        : "=r"(w) : "r"(from), "i"(at), "m"(*(const int8_t (*)[4])((from) + (at))))
/* Two codes of two pixels with two weights of two outputs. */
#define MULTIPLY_TWO(x, y, w, a, b, c, d) \
    do { \
        int32_t even; \
        __asm__ volatile("sxtb16 %5, %4\\n\\tsmlad %0, %6, %5, %0\\n\\tsmlad %1, %7, %5, %1\\n\\t" \
            "sxtb16 %4, %4, ror #8\\n\\tsmlad %2, %6, %4, %2\\n\\tsmlad %3, %7, %4, %3" \
            : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(w), "=&r"(even) : "r"(x), "r"(y)); \
    } while (0)
#define STEP(j) \
    do { \
        int32_t x, y, w; \
        LOAD_TWO(x, y, pairs, 8 * (j)); \
        LOAD_ONE(w, weights, 4 * (j)); \
        MULTIPLY_TWO(x, y, w, a0, b0, a1, b1); \
        LOAD_ONE(w, weights, 4 * (j) + 32); \
        MULTIPLY_TWO(x, y, w, a2, b2, a3, b3); \
    } while (0)
/* The same of one pixel. */
#define MULTIPLY_ONE(x, w, a, c) \
    do { \
        int32_t even; \
        __asm__ volatile("sxtb16 %3, %2\\n\\tsmlad %0, %4, %3, %0\\n\\t" \
            "sxtb16 %2, %2, ror #8\\n\\tsmlad %1, %4, %2, %1" \
            : "+r"(a), "+r"(c), "+r"(w), "=&r"(even) : "r"(x)); \
    } while (0)
#define HALF_STEP(j) \
    do { \
        int32_t x, w; \
        LOAD_ONE(x, (const int8_t *)pairs, 8 * (j)); \
        LOAD_ONE(w, weights, 4 * (j)); \
        MULTIPLY_ONE(x, w, a0, a1); \
        LOAD_ONE(w, weights, 4 * (j) + 32); \
        MULTIPLY_ONE(x, w, a2, a3); \
    } while (0)

static void multiply_pairs(const int32_t *restrict pairs, const int8_t *restrict weights,
    int32_t *restrict sums, int32_t depth, int32_t outputs, int32_t pixels)
{
    const int32_t *const first = pairs, *const end = pairs + (depth + 15) / 16 * 16;
    int32_t *other = sums + (outputs + 3) / 4 * 4;

    for (int32_t o = 0; o < outputs; o += 4, sums += 4, other += 4) {
        int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;

        pairs = first;
        if (pixels == 1) {
            for (; pairs != end; pairs += 16, weights += 64) {
                HALF_STEP(0);
                HALF_STEP(1);
                HALF_STEP(2);
                HALF_STEP(3);
                HALF_STEP(4);
                HALF_STEP(5);
                HALF_STEP(6);
                HALF_STEP(7);
            }
        } else {
            for (; pairs != end; pairs += 16, weights += 64) {
                STEP(0);
                STEP(1);
                STEP(2);
                STEP(3);
                STEP(4);
                STEP(5);
                STEP(6);
                STEP(7);
            }
            other[0] = b0;
            other[1] = b1;
            other[2] = b2;
            other[3] = b3;
        }
        sums[0] = a0;
        sums[1] = a1;
        sums[2] = a2;
        sums[3] = a3;
    }
}
"""
