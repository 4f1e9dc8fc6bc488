"""Helpers of the generated file that compute one row of channels; only those in use are written.

A template is filled with the types of the image, of the weights and of the sums.
"""

from __future__ import annotations

WINDOW = """\
/* Sizes of a window and of the image that it moves over. */
typedef struct {
    int32_t height, width, channels;
    int32_t kernel_height, kernel_width;
    int32_t stride_y, stride_x;
    int32_t dilation_y, dilation_x;
    int32_t top, left; /* padding */
    int32_t outputs;   /* channels of the result */
    int32_t groups;    /* of channels, each with its own outputs */
    int32_t columns;   /* of the result */
} window;
"""
WINDOW_FIELDS = (
    "height", "width", "channels", "kernel_height", "kernel_width", "stride_y", "stride_x",
    "dilation_y", "dilation_x", "top", "left", "outputs", "groups", "columns",
)  # fmt: skip
# The loop of all windows: from an output position to the pixels of its window.
TAPS = """\
    for (int32_t i = 0; i < at->kernel_height; ++i) {{
        const int32_t line = y * at->stride_y + i * at->dilation_y - at->top;

        if (line < 0 || line >= at->height)
            continue;
        for (int32_t j = 0; j < at->kernel_width; ++j) {{
            const int32_t column = x * at->stride_x + j * at->dilation_x - at->left;

            if (column < 0 || column >= at->width)
                continue;
            const {x} *pixel = image + (line * at->width + column) * at->channels;
"""
CONV2D = (
    """\
/* Sums of products for every output at (y, x). Weights: [height][width][inputs][outputs]. */
static void {name}(const {x} *restrict image, const {w} *restrict weights,
    {a} *restrict sums, int32_t y, int32_t x, const window *at)
{{
    const int32_t inputs = at->channels / at->groups, outputs = at->outputs / at->groups;

    memset(sums, 0, (size_t)at->outputs * sizeof *sums);
"""
    + TAPS
    + """\
            for (int32_t k = 0; k < at->channels; ++k) {{
                const {a} code = pixel[k];
                const int32_t first = k / inputs * outputs; /* of this group's outputs */
                const int32_t tap = (i * at->kernel_width + j) * inputs + k % inputs;
                const {w} *row = weights + tap * at->outputs + first;

                for (int32_t o = 0; o < outputs; ++o)
                    sums[first + o] += code * row[o];
            }}
        }}
    }}
}}
"""
)
DEPTHWISE_HEAD = """\
/* Sums of products at (y, x), separately for each channel. Weights: [height][width][outputs]. */
static void {name}(const {x} *restrict image, const {w} *restrict weights,
    {a} *restrict sums, int32_t y, int32_t x, const window *at)
{{
    memset(sums, 0, (size_t)at->outputs * sizeof *sums);
"""
DEPTHWISE = (
    DEPTHWISE_HEAD
    + TAPS
    + """\
            const {w} *taps = weights + (i * at->kernel_width + j) * at->channels;

            for (int32_t c = 0; c < at->channels; ++c)
                sums[c] += ({a})pixel[c] * taps[c];
        }}
    }}
}}
"""
)
DEPTHWISE_MULTIPLIED = (
    DEPTHWISE_HEAD
    + TAPS
    + """\
            const int32_t each = at->outputs / at->channels; /* outputs of a channel */
            const {w} *taps = weights + (i * at->kernel_width + j) * at->outputs;

            for (int32_t o = 0; o < at->outputs; ++o)
                sums[o] += ({a})pixel[o / each] * taps[o];
        }}
    }}
}}
"""
)
MAX_POOL = (
    """\
/* The largest code of each channel at (y, x), without padding. */
static void {name}(const {x} *restrict image, {x} *restrict row,
    int32_t y, int32_t x, const window *at)
{{
    int first = 1;

"""
    + TAPS
    + """\
            for (int32_t c = 0; c < at->channels; ++c) {{
                if (first || pixel[c] > row[c])
                    row[c] = pixel[c];
            }}
            first = 0;
        }}
    }}
}}
"""
)
MATMUL = """\
/* Sums of products for every output. Weights: [inputs][outputs]. */
static void {name}(const {x} *restrict row, const {w} *restrict weights,
    {a} *restrict sums, int32_t inputs, int32_t outputs)
{{
    memset(sums, 0, (size_t)outputs * sizeof *sums);
    for (int32_t k = 0; k < inputs; ++k) {{
        const {a} code = row[k];

        for (int32_t o = 0; o < outputs; ++o)
            sums[o] += code * weights[k * outputs + o];
    }}
}}
"""
STANDARDIZE = """\
/* Subtracts the mean of a row and divides by its standard deviation, in integers. The deviation has
 * `guard` fractional bits and `epsilon` added to its square. Rounded to nearest, ties up. */
static void {name}(const {x} *restrict codes, {a} *restrict row, int32_t channels,
    int guard, int64_t epsilon, int shift)
{{
    int64_t total = 0, square = 0, root = 0;

    for (int32_t c = 0; c < channels; ++c) {{
        total += codes[c];
        square += (int64_t)codes[c] * codes[c];
    }}
    square = (channels * square - total * total) * (INT64_C(1) << (2 * guard)) + epsilon;
    for (int64_t bit = INT64_C(1) << 25; bit > 0; bit /= 2) {{
        if ((root + bit) * (root + bit) <= square)
            root += bit;
    }}
    ++root; /* larger than the exact root, and never 0 */
    for (int32_t c = 0; c < channels; ++c) {{
        const int64_t deviation = (int64_t)channels * codes[c] - total;
        const int64_t doubled = deviation * (INT64_C(2) << shift) + root;

        row[c] = ({a})(doubled / (2 * root) - (doubled % (2 * root) < 0));
    }}
}}
"""
SOFTMAX = """\
/* The share of each code of a row, with `bits` fractional bits: its table entry, by the distance
 * from the largest code, divided by the sum of all. Rounded to nearest, ties up. */
static void {name}(const {x} *restrict codes, const {w} *restrict table, {a} *restrict row,
    int32_t channels, int64_t entries, int bits, int64_t high)
{{
    int64_t most = codes[0], total = 0;

    for (int32_t c = 1; c < channels; ++c) {{
        if (codes[c] > most)
            most = codes[c];
    }}
    for (int32_t c = 0; c < channels; ++c) {{
        const int64_t distance = most - codes[c];

        total += table[distance < entries ? distance : entries - 1];
    }}
    for (int32_t c = 0; c < channels; ++c) {{
        const int64_t distance = most - codes[c];
        const int64_t entry = table[distance < entries ? distance : entries - 1];
        const int64_t share = (entry * (INT64_C(1) << bits) + total / 2) / total;

        row[c] = ({a})(share < high ? share : high);
    }}
}}
"""
KERNELS = {
    "conv2d": CONV2D,
    "depthwise_conv2d": DEPTHWISE,
    "depthwise_conv2d_multiplied": DEPTHWISE_MULTIPLIED,
    "max_pool": MAX_POOL,
    "matmul": MATMUL,
    "standardize": STANDARDIZE,
    "softmax": SOFTMAX,
}
