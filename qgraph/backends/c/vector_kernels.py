"""Helpers for packed weights that multiply sixteen codes by an instruction (Arm's MVE)."""

from __future__ import annotations

VECTOR_BYTES = {
    "u8": """\
/* Codes minus 128 as int8; `offsets` of the layer are 128 times the sums of weights. */
static void bytes_u8(const uint8_t *restrict codes, int8_t *restrict bytes, int32_t depth)
{
    for (int32_t k = 0; k < depth; k += 16) {
        const uint8x16_t some = vldrbq_z_u8(codes + k, vctp8q((uint32_t)(depth - k)));

        vstrbq_u8((uint8_t *)bytes + k, veorq_u8(some, vdupq_n_u8(128)));
    }
}
""",
    "i8": """\
static void bytes_i8(const int8_t *restrict codes, int8_t *restrict bytes, int32_t depth)
{
    for (int32_t k = 0; k < depth; k += 16)
        vstrbq_s8(bytes + k, vldrbq_z_s8(codes + k, vctp8q((uint32_t)(depth - k))));
}
""",
}
MULTIPLY_BYTES = """\
/* Sums of two outputs for two pixels; with an offset, `start` is added. */
static inline VECTOR_HELPER void multiply_two_by_two(const int8_t *x, const int8_t *y,
    const int8_t *weights, int32_t blocks, const int32_t *start, int32_t *sums, int32_t *other,
    int offset)
{
    int32_t a = offset ? start[0] : 0, b = offset ? start[1] : 0, c = a, d = b;

    do {
        const int8x16x2_t w = vld2q_s8(weights);
        const int8x16_t p = vldrbq_s8(x), q = vldrbq_s8(y);

        a = vmladavaq_s8(a, p, w.val[0]);
        b = vmladavaq_s8(b, p, w.val[1]);
        c = vmladavaq_s8(c, q, w.val[0]);
        d = vmladavaq_s8(d, q, w.val[1]);
        weights += 64;
        x += 16;
        y += 16;
    } while (--blocks > 0);
    sums[0] = a;
    sums[1] = b;
    other[0] = c;
    other[1] = d;
}

/* Sums of four outputs for one pixel. */
static inline VECTOR_HELPER void multiply_one_by_four(const int8_t *x, const int8_t *weights,
    int32_t blocks, const int32_t *start, int32_t *sums, int offset)
{
    int32_t a = offset ? start[0] : 0, b = offset ? start[1] : 0;
    int32_t c = offset ? start[2] : 0, d = offset ? start[3] : 0;

    do {
        const int8x16x2_t v = vld2q_s8(weights), w = vld2q_s8(weights + 32);
        const int8x16_t p = vldrbq_s8(x);

        a = vmladavaq_s8(a, p, v.val[0]);
        b = vmladavaq_s8(b, p, v.val[1]);
        c = vmladavaq_s8(c, p, w.val[0]);
        d = vmladavaq_s8(d, p, w.val[1]);
        weights += 64;
        x += 16;
    } while (--blocks > 0);
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}

/* Sums of all outputs, from vectors of codes of one or two pixels. */
static inline VECTOR_HELPER void multiply_bytes(const int8_t *bytes, const int8_t *weights,
    const int32_t *offsets, int32_t *sums, int32_t depth, int32_t outputs, int32_t pixels,
    int offset)
{
    const int32_t blocks = (depth + 15) / 16;
    const int8_t *const next = bytes + 16 * blocks;
    int32_t *other = sums + (outputs + 3) / 4 * 4, *const end = other;

    for (; sums != end; sums += 4, weights += 64 * blocks) {
        if (pixels == 1) {
            multiply_one_by_four(bytes, weights, blocks, offsets, sums, offset);
        } else {
            multiply_two_by_two(bytes, next, weights, blocks, offsets, sums, other, offset);
            multiply_two_by_two(bytes, next, weights + 32, blocks,
                offset ? offsets + 2 : NULL, sums + 2, other + 2, offset);
            other += 4;
        }
        if (offset)
            offsets += 4;
    }
}
"""
