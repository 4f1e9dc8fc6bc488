"""C for heads: greedy actions from outputs, with the operations of `Head.actions` in its types."""

from __future__ import annotations

import numpy as np

from qgraph.choices import HeadKind
from qgraph.errors import UnsupportedError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.deploy.float_loop import FloatArrays, float_literal
from qgraph.rl.head import Head

TANH = """\
/* tanh in float64, by +, -, * and / only, then rounded to float32. */
static float tanh_of(float x)
{
    const double t = x < 0.0f ? -(double)x : (double)x;
    double y;

    if (t >= 10.0) {
        y = 1.0;
    } else if (t < 0.25) { /* x - x^3 / 3 + 2 x^5 / 15 - ... */
        const double s = t * t;

        y = -443861162.0 / 1856156927625.0;
        y = 6404582.0 / 10854718875.0 + s * y;
        y = -929569.0 / 638512875.0 + s * y;
        y = 21844.0 / 6081075.0 + s * y;
        y = -1382.0 / 155925.0 + s * y;
        y = 62.0 / 2835.0 + s * y;
        y = -17.0 / 315.0 + s * y;
        y = 2.0 / 15.0 + s * y;
        y = -1.0 / 3.0 + s * y;
        y = t + t * s * y;
    } else { /* 1 - 2 / (e + 1), e = exp(2 t) = 2^k exp(r) */
        const int32_t k = (int32_t)(2.0 * t * 1.4426950408889634 + 0.5);
        const double r = (2.0 * t - k * 0.693145751953125) - k * 1.4286068203094172e-06;
        double e = 1.0;

        for (int32_t n = 16; n > 0; n -= 1)
            e = 1.0 + e * r / n;
        for (int32_t n = 0; n < k; ++n)
            e += e;
        y = 1.0 - 2.0 / (e + 1.0);
    }
    return (float)(x < 0.0f ? -y : y);
}
"""
LARGEST = """\
    int32_t best = 0;

    for (int32_t i = 1; i < {count}; ++i)
        if (outputs[i] > outputs[best])
            best = i;
    *action = best;"""
CHOICES = """\
    static const int32_t choices[{count}] = {{{choices}}};

    for (int32_t c = 0, at = 0; c < {count}; ++c) {{
        int32_t best = -1;

        for (int32_t i = 0; i < choices[c]; ++i)
            if ({valid}(best < 0 || outputs[at + i] > outputs[at + best]))
                best = i;
        action[c] = best;
        at += choices[c];
    }}"""
SWITCHES = """\
    for (int32_t i = 0; i < {count}; ++i)
        action[i] = outputs[i] > 0.0f;"""
EACH = """\
    for (int32_t i = 0; i < {count}; ++i) {{
        float x = outputs[i];

{lines}
        action[i] = x;
    }}"""
SCALED = (HeadKind.SCALE, HeadKind.SQUASHED_GAUSSIAN)


def head_body(head: Head | None, outputs: int, arrays: FloatArrays) -> str:
    """The statements that compute `action` from `outputs`. Without a head, it is the outputs.

    outputs: their number. Raises UsageError if the head takes another number of them, and
    UnsupportedError if it scales to bounds that are not finite.
    """
    if head is None:
        return EACH.format(count=outputs, lines="").replace("\n\n\n", "\n")
    if head.discrete and not head.masks:
        return LARGEST.format(count=outputs)
    wanted = outputs if head.discrete else head.outputs_for(len(head.low))
    if outputs != wanted:
        raise UsageError(
            f"the policy has {outputs} outputs, but its `{head.kind}` head takes {wanted}",
            hint="quantize the policy again, with bounds for each number of an action",
        )
    if head.kind == HeadKind.BERNOULLI:
        return SWITCHES.format(count=outputs)
    if head.integers:
        choices = head.choices or (outputs,)
        return CHOICES.format(
            count=len(choices),
            choices=", ".join(map(str, choices)),
            valid="mask[at + i] != 0 && " if head.masks else "",
        )
    low, high = (np.asarray(end, np.float32) for end in (head.low, head.high))
    lines = []
    if head.kind == HeadKind.SQUASHED_GAUSSIAN:
        lines.append("x = tanh_of(x);")
    if head.kind in SCALED:
        lines += _scaled(low, high, arrays)
    if np.isfinite(low).any():
        bound = arrays.element(_finite(low), "action_low")
        lines.append(f"x = x > {bound} ? x : {bound};")
    if np.isfinite(high).any():
        bound = arrays.element(_finite(high), "action_high")
        lines.append(f"x = x < {bound} ? x : {bound};")
    return EACH.format(count=len(low), lines="\n".join(f"        {line}" for line in lines))


def needs_tanh(head: Head | None) -> bool:
    return head is not None and head.kind == HeadKind.SQUASHED_GAUSSIAN


def _scaled(low: Array, high: Array, arrays: FloatArrays) -> list[str]:
    with np.errstate(over="ignore", invalid="ignore"):
        span = high - low
    if not np.isfinite(span).all():
        raise UnsupportedError(
            "actions are scaled to bounds that are not finite in float32",
            hint="quantize the policy with bounds of actions, or with a head that clips",
        )
    first, width = arrays.element(low, "action_low"), arrays.element(span, "action_span")
    one = float_literal(1.0)
    return [
        f"x = x > -{one} ? x : -{one};",
        f"x = x < {one} ? x : {one};",
        f"x = {first} + (x + {one}) * {width} / 2.0f;",
    ]


def _finite(bounds: Array) -> Array:
    """Bounds with the largest floats in place of infinity, which clip no output of integers."""
    limit = np.finfo(np.float32).max
    return np.clip(bounds, -limit, limit)
