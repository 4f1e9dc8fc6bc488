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
# The same in fewer instructions, for v + 2^(n-1) within int32. {up} is added to v.
SHORT = """\
/* v / 2^n, rounded to nearest; {ties}. 1 <= n, and v + 2^(n-1) is within int32. */
static int32_t short_{name}_i32(int32_t v, int n)
{{
    return floor_shift_i32(v + {up}, n);
}}
"""
UPS = {
    "half_even": "(((int32_t)1 << (n - 1)) - 1 + (floor_shift_i32(v, n) & 1))",
    "half_up": "((int32_t)1 << (n - 1))",
    "half_away": "(((int32_t)1 << (n - 1)) - (v < 0))",
}
SHORT_DOUBLE = """\
/* v / 2^n, rounded to nearest; {ties}. 2 <= n, and v + 2^(n-1) is within int32. */
static int32_t short_double_i32(int32_t v, int n)
{{
    return short_half_away_i32(floor_shift_i32(v + 1, 1), n - 1);
}}
"""
# Clipping to all codes of some bits, which is one instruction with the DSP extension.
SATURATE = """\
/* v clipped to the codes of {bits} bits. */
static int32_t saturate_{name}_i32(int32_t v)
{{
#ifdef HAS_PAIRS
    int32_t made;

    __asm__("{op} %0, #{bits}, %1" : "=r"(made) : "r"(v));
    return made;
#else
    return v < {low} ? {low} : v > {high} ? {high} : v;
#endif
}}
"""
SATURATED = {
    (-(1 << (bits - 1)) * signed, (1 << (bits - signed)) - 1): ("ui"[signed] + str(bits), bits)
    for bits in (4, 8, 16)
    for signed in (0, 1)
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
        elif name == "short_double":
            write("short_half_away", kind)
            text = SHORT_DOUBLE.format(ties=TIES["double"][0])
        elif name.startswith("short_"):
            write("floor_shift", kind)
            plain = name.removeprefix("short_")
            text = SHORT.format(name=plain, ties=TIES[plain][0], up=UPS[plain])
        elif name.startswith("saturate_"):
            text = _saturate(name.removeprefix("saturate_"))
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


def _saturate(name: str) -> str:
    low, high = next(ends for ends, (known, _) in SATURATED.items() if known == name)
    op = "ssat" if low < 0 else "usat"
    bits = SATURATED[low, high][1]
    return SATURATE.format(name=name, bits=bits, op=op, low=low, high=high)
