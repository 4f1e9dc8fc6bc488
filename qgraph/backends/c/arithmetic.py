"""Helpers of the generated file that round, shift and clip; only those in use are written."""

from __future__ import annotations

FLOOR = """\
/* v / 2^n, rounded down. In C, the result of >> on negative numbers depends on the compiler. */
static {t} floor_shift_{s}({t} v, int n)
{{
    return v >= 0 ? v >> n : ~(~v >> n);
}}
"""
ROUND = """\
/* v / 2^n, rounded to nearest; {ties}. 1 <= n <= {most}. */
static {t} {name}_{s}({t} v, int n)
{{
    const {t} whole = floor_shift_{s}(v, n), half = ({t})1 << (n - 1);
    const {t} rest = ({t})((u{t})v & (((u{t})1 << n) - 1));

    return whole + ({up});
}}
"""
TIES = {
    "half_even": ("ties to even", "rest > half || (rest == half && whole % 2 != 0)"),
    "half_up": ("ties towards +infinity", "rest >= half"),
    "half_away": ("ties away from 0", "rest > half || (rest == half && v >= 0)"),
    "double": (
        "first by one bit with ties up, then by the other bits with ties away from 0",
        "rest > half - rest % 2 || (rest == half - rest % 2 && v >= 0)",
    ),
}
LEFT = """\
/* v * 2^n, clipped to +-2^62; 0 <= n <= 61. */
static int64_t shift_left_i64(int64_t v, int n)
{
    const int64_t limit = INT64_C(1) << (62 - n);

    return clamp_i64(v, -limit, limit) * (INT64_C(1) << n);
}
"""
EITHER = """\
/* v / 2^n; a negative n multiplies. */
static int64_t {name}_or_left_i64(int64_t v, int n)
{{
    return n > 0 ? {name}_i64(v, n) : shift_left_i64(v, -n);
}}
"""
PLAIN = {
    "max": """\
static {t} max_{s}({t} a, {t} b)
{{
    return a > b ? a : b;
}}
""",
    "min": """\
static {t} min_{s}({t} a, {t} b)
{{
    return a < b ? a : b;
}}
""",
    "clamp": """\
static {t} clamp_{s}({t} v, {t} low, {t} high)
{{
    return v < low ? low : v > high ? high : v;
}}
""",
    "wrap": """\
/* v wrapped into the range from low to low + mask, where mask is 2^bits - 1. */
static {t} wrap_{s}({t} v, {t} low, {t} mask)
{{
    return ({t})(((u{t})v - (u{t})low) & (u{t})mask) + low;
}}
""",
    "floor_shift": FLOOR,
}


def helpers(used: set[tuple[str, str]]) -> list[str]:
    """Text of the helpers in `used`, as (name, "i32" or "i64"), and of those that they use."""
    texts: dict[tuple[str, str], str] = {}

    def write(name: str, kind: str) -> None:
        if (name, kind) in texts:
            return
        types = {"t": f"int{kind[1:]}_t", "s": kind}
        if name.endswith("_or_left"):
            plain = name.removesuffix("_or_left")
            write(plain, "i64")
            write("shift_left", "i64")
            text = EITHER.format(name=plain)
        elif name == "shift_left":
            write("clamp", "i64")
            text = LEFT
        elif name in TIES:
            write("floor_shift", kind)
            ties, up = TIES[name]
            text = ROUND.format(name=name, ties=ties, up=up, most=int(kind[1:]) - 1, **types)
        else:
            text = PLAIN[name].format(**types)
        texts[name, kind] = text

    for name, kind in sorted(used):
        write(name, kind)
    return [*texts.values()]
