"""Helpers of the generated file for depthwise convolutions of bytes with weights of 8 bits.

Sums of some channels are in registers while the window is read: of four in plain C and with the DSP
extension, of eight with vectors.
"""

from __future__ import annotations

from qgraph.backends.c.c_text import short

# TAP multiplies codes at `p` with the weights at `q + k`, where k is a constant. It is assembler in
# one piece, because compilers otherwise load all codes first, and then run out of registers.
TAP = {
    "plain": """\
#define TAP(p, q, k) \\
    do { \\
        a += (p)[0] * (q)[(k)]; \\
        b += (p)[1] * (q)[(k) + 1]; \\
        d += (p)[2] * (q)[(k) + 2]; \\
        e += (p)[3] * (q)[(k) + 3]; \\
    } while (0)
""",
    "pairs": """\
#define TAP(p, q, k) \\
    do { \\
        int32_t v, w, s, t; \\
        __asm__ volatile("ldr %0, %8\\n\\tldr %1, %9\\n\\t" \\
            "SIGNxtb16 %2, %0\\n\\tsxtb16 %3, %1\\n\\t" \\
            "smlabb %4, %2, %3, %4\\n\\tsmlatt %6, %2, %3, %6\\n\\t" \\
            "SIGNxtb16 %0, %0, ror #8\\n\\tsxtb16 %1, %1, ror #8\\n\\t" \\
            "smlabb %5, %0, %1, %5\\n\\tsmlatt %7, %0, %1, %7" \\
            : "=&r"(v), "=&r"(w), "=&r"(s), "=&r"(t), "+r"(a), "+r"(b), "+r"(d), "+r"(e) \\
            : "m"(*(const int8_t (*)[4])(p)), "m"(*(const int8_t (*)[4])((q) + (k)))); \\
    } while (0)
""",
    "vectors": """\
#define TAP(p, q, k) \\
    do { \\
        int16x8_t v, w; \\
        int32x4_t t; \\
        __asm__ volatile("vldrb.SIGN16 %q0, [%5]\\n\\tvldrb.s16 %q1, [%6, %7]\\n\\t" \\
            "vmullb.s16 %q2, %q0, %q1\\n\\tvadd.i32 %q3, %q3, %q2\\n\\t" \\
            "vmullt.s16 %q2, %q0, %q1\\n\\tvadd.i32 %q4, %q4, %q2" \\
            : "=&w"(v), "=&w"(w), "=&w"(t), "+w"(even), "+w"(odd) \\
            : "l"(p), "l"(q), "i"(k), "m"(*(const int8_t (*)[8])(p)), \\
              "m"(*(const int8_t (*)[8])((q) + (k)))); \\
    } while (0)
""",
}
# The loops over the window's places in the image, from channel `c` on. Windows of 3x3 that are
# inside the image are written out.
PLACES = """\
        const {x} *line = image + first + c;
        const int8_t *taps = block;

        if (whole) {{
            const {x} *const second = line + line_step, *const third = second + line_step;

            TAP(line, taps, 0);
            TAP(line + step, taps, 8);
            TAP(line + 2 * step, taps, 16);
            TAP(second, taps, 24);
            TAP(second + step, taps, 32);
            TAP(second + 2 * step, taps, 40);
            TAP(third, taps, 48);
            TAP(third + step, taps, 56);
            TAP(third + 2 * step, taps, 64);
        }} else {{
            taps += first_tap;
            for (int32_t i = 0; i < rows; ++i, line += line_step, taps += taps_step) {{
                if (columns == 3) {{
                    TAP(line, taps, 0);
                    TAP(line + step, taps, 8);
                    TAP(line + 2 * step, taps, 16);
                }} else if (columns == 2) {{
                    TAP(line, taps, 0);
                    TAP(line + step, taps, 8);
                }} else {{
                    for (int32_t j = 0; j < columns; ++j)
                        TAP(line + j * step, taps + 8 * j, 0);
                }}
            }}
        }}"""
DEPTHWISE_OF_BYTES = """\
{taps}
/* Sums of products at (y, x), separately for each channel. Weights: of 8 channels after the other,
 * [height][width][8]. */
static void depthwise_{s}(const {x} *restrict image, const int8_t *restrict weights,
    int32_t *restrict sums, int32_t y, int32_t x, const window *at)
{{
    const int32_t channels = at->channels, places = at->kernel_height * at->kernel_width;
    const int32_t top = y * at->stride_y - at->top, left = x * at->stride_x - at->left;
    const int32_t above = top < 0 ? (at->dilation_y - 1 - top) / at->dilation_y : 0;
    const int32_t before = left < 0 ? (at->dilation_x - 1 - left) / at->dilation_x : 0;
    const int32_t below = (at->height - top + at->dilation_y - 1) / at->dilation_y;
    const int32_t behind = (at->width - left + at->dilation_x - 1) / at->dilation_x;
    const int32_t rows = (below < at->kernel_height ? below : at->kernel_height) - above;
    const int32_t columns = (behind < at->kernel_width ? behind : at->kernel_width) - before;
    const int32_t first = ((top + above * at->dilation_y) * at->width + left
        + before * at->dilation_x) * channels;
    const int32_t first_tap = 8 * (above * at->kernel_width + before);
    const int32_t line_step = at->dilation_y * at->width * channels;
    const int32_t step = at->dilation_x * channels, taps_step = 8 * at->kernel_width;
    const int whole = rows == 3 && columns == 3 && places == 9;
    const int8_t *block = weights;

    if (rows <= 0 || columns <= 0) {{
        memset(sums, 0, (size_t)channels * sizeof *sums);
        return;
    }}
#ifdef HAS_VECTORS
    const int32_t together = channels / 8 * 8;

    for (int32_t c = 0; c < together; c += 8) {{
        register int32x4_t even __asm__("q2") = vdupq_n_s32(0), odd __asm__("q3") = even;
{places}
        __asm__ volatile("vst20.32 {{q2, q3}}, [%1]\\n\\tvst21.32 {{q2, q3}}, [%1]"
            : "=m"(*(int32_t (*)[8])(sums + c)) : "r"(sums + c), "w"(even), "w"(odd));
        block += 8 * places;
    }}
#else
    const int32_t together = channels / 4 * 4;

    for (int32_t c = 0; c < together; c += 4) {{
        int32_t a = 0, b = 0, d = 0, e = 0;
{places}
        sums[c] = a;
        sums[c + 1] = b;
        sums[c + 2] = d;
        sums[c + 3] = e;
        block += c % 8 ? 8 * places - 4 : 4;
    }}
#endif
    for (int32_t c = together; c < channels; ++c) {{
        const {x} *line = image + first + c;
        const int8_t *taps = weights + c / 8 * 8 * places + c % 8 + first_tap;
        int32_t sum = 0;

        for (int32_t i = 0; i < rows; ++i, line += line_step, taps += taps_step) {{
            for (int32_t j = 0; j < columns; ++j)
                sum += line[j * step] * taps[8 * j];
        }}
        sums[c] = sum;
    }}
}}
#undef TAP
"""


def depthwise_kernel(kind: str) -> str:
    """The helper for codes of type `uint8` or `int8`."""
    name = short(kind)
    vectors, pairs = (
        TAP[k].replace("SIGN", name[0].replace("i", "s")) for k in ("vectors", "pairs")
    )
    taps = f"#if defined(HAS_VECTORS)\n{vectors}#elif defined(HAS_PAIRS)\n{pairs}#else\n"
    places = PLACES.format(x=f"{kind}_t")
    return DEPTHWISE_OF_BYTES.format(
        taps=f"{taps}{TAP['plain']}#endif", places=places, x=f"{kind}_t", s=name
    )
