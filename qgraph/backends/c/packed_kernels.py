"""Helpers of the generated file for sums of products with packed weights (`packing.py`).

The plain C is for every processor. Where the compiler defines `__ARM_FEATURE_SIMD32` (Cortex-M4 and
later) or `__ARM_FEATURE_MVE` (Cortex-M55 and later), instructions that multiply two or sixteen
codes take its place. Sums fit into int32, and all ways add modulo 2^32, so sums are equal in any
order.
"""

from __future__ import annotations

from collections.abc import Sequence

from qgraph.backends.c.c_text import short
from qgraph.backends.c.pair_kernels import MULTIPLY_PAIRS, PAIRS, PAIRS_OF_BYTES, PAIRS_OF_WORDS
from qgraph.backends.c.vector_kernels import MULTIPLY_BYTES, VECTOR_BYTES

BYTES = "uint8", "int8"
# {x} is the type of the codes, {s} its short name.
WINDOW_AT = """\
/* The codes that the window of output `p` sees: in the image if they are in a row there, otherwise
 * copied to `patch`, with 0 outside of the image. */
static const {x} *window_{s}(const {x} *restrict image, {x} *restrict patch, int32_t p,
    const window *at)
{{
    const int32_t line = p / at->columns * at->stride_y - at->top;
    const int32_t column = p % at->columns * at->stride_x - at->left;
    const int32_t channels = at->channels;
    {x} *to = patch;

    if (at->kernel_height * at->kernel_width == 1 && line >= 0 && line < at->height
        && column >= 0 && column < at->width)
        return image + (line * at->width + column) * channels;
    for (int32_t i = 0; i < at->kernel_height; ++i) {{
        const int32_t row = line + i * at->dilation_y;
        const int inside = row >= 0 && row < at->height;

        if (inside && at->dilation_x == 1 && column >= 0
            && column + at->kernel_width <= at->width) {{
            memcpy(to, image + (row * at->width + column) * channels,
                (size_t)(at->kernel_width * channels) * sizeof *to);
            to += at->kernel_width * channels;
            continue;
        }}
        for (int32_t j = 0; j < at->kernel_width; ++j, to += channels) {{
            const int32_t place = column + j * at->dilation_x;

            if (inside && place >= 0 && place < at->width)
                memcpy(to, image + (row * at->width + place) * channels,
                    (size_t)channels * sizeof *to);
            else
                memset(to, 0, (size_t)channels * sizeof *to);
        }}
    }}
    return patch;
}}
"""
PLAIN_PRODUCTS = """\
/* Sums of products of `depth` codes with the weights of each output, which are packed: of four
 * outputs, blocks of 16 weights, two outputs after the other. */
static void multiply_{s}(const {x} *restrict codes, const int8_t *restrict weights,
    int32_t *restrict sums, int32_t depth, int32_t outputs)
{{
    for (int32_t o = 0; o < outputs; o += 4) {{
        int32_t a = 0, b = 0, c = 0, d = 0;

        for (int32_t k = 0; k < depth; k += 16, weights += 64) {{
            const int32_t count = depth - k < 16 ? depth - k : 16;

            for (int32_t j = 0; j < count; ++j) {{
                const int32_t code = codes[k + j];

                a += code * weights[2 * j];
                b += code * weights[2 * j + 1];
                c += code * weights[2 * j + 32];
                d += code * weights[2 * j + 33];
            }}
        }}
        sums[o] = a;
        sums[o + 1] = b;
        sums[o + 2] = c;
        sums[o + 3] = d;
    }}
}}
"""
PACKED_LAYER = """\
/* Sums of products for `pixels` outputs, 1 or 2, from `p` on. `offsets` are used with vectors. */
static void packed_{s}(const {x} *image, const int8_t *weights, const int32_t *offsets,
    int32_t *sums, int32_t *work, {x} *patch, int32_t p, int32_t pixels, const window *at)
{{
    const int32_t depth = at->kernel_height * at->kernel_width * at->channels;

    for (int32_t q = 0; q < pixels; ++q) {{
        const {x} *codes = window_{s}(image, patch, p + q, at);

{branches}
#else
        multiply_{s}(codes, weights, sums + q * ((at->outputs + 3) / 4 * 4), depth, at->outputs);
#endif
    }}
{calls}
#else
    (void)offsets;
    (void)work;
#endif
}}
"""
BYTE_TYPES = """\
#if defined(HAS_VECTORS)
        bytes_{s}(codes, (int8_t *)work + q * ((depth + 15) / 16 * 16), depth);
#elif defined(HAS_PAIRS)
        pairs_{s}(codes, work + q, depth);"""
WORD_TYPES = """\
#if defined(HAS_PAIRS)
        pairs_{s}(codes, work + q, depth);"""
BYTE_CALLS = """\
#if defined(HAS_VECTORS)
    multiply_bytes((const int8_t *)work, weights, offsets, sums, depth, at->outputs, pixels,
        {offset});
#elif defined(HAS_PAIRS)
    (void)offsets;
    multiply_pairs(work, weights, sums, depth, at->outputs, pixels);"""
WORD_CALLS = """\
    (void)offsets;
#if defined(HAS_PAIRS)
    multiply_pairs(work, weights, sums, depth, at->outputs, pixels);"""


def packed_kernels(kinds: Sequence[str]) -> list[str]:
    """The helpers for codes of these types, such as `uint8`."""
    words = [kind for kind in kinds if kind not in BYTES]
    texts = []
    if len(words) < len(kinds):
        texts.append(_guarded("defined(HAS_VECTORS)", MULTIPLY_BYTES))
    if not kinds:
        return []
    pairs = "defined(HAS_PAIRS)" if words else "defined(HAS_PAIRS) && !defined(HAS_VECTORS)"
    texts.append(_guarded(pairs, MULTIPLY_PAIRS))
    for kind in kinds:
        texts += _kernels_of(kind)
    return texts


def _kernels_of(kind: str) -> list[str]:
    names = {"x": f"{kind}_t", "s": short(kind)}
    byte = kind in BYTES
    body = (PAIRS_OF_BYTES if byte else PAIRS_OF_WORDS).format(**names)
    pairs, plain = PAIRS.format(body=body, **names), PLAIN_PRODUCTS.format(**names)
    chosen = f"#elif defined(HAS_PAIRS)\n{pairs}\n#else\n{plain}\n#endif\n"
    if byte:
        arranged = f"#if defined(HAS_VECTORS)\n{VECTOR_BYTES[names['s']]}\n{chosen}"
    else:
        arranged = chosen.replace("#elif", "#if", 1)
    branches = (BYTE_TYPES if byte else WORD_TYPES).format(**names)
    calls = BYTE_CALLS if byte else WORD_CALLS
    calls = calls.replace("{offset}", str(int(kind == "uint8")))
    whole = PACKED_LAYER.format(branches=branches, calls=calls, **names)
    return [WINDOW_AT.format(**names), arranged, whole]


def _guarded(condition: str, text: str) -> str:
    return f"#if {condition}\n{text}#endif\n"
