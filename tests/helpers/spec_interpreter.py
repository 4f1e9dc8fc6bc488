"""An interpreter of programs, written only from docs/integer_program.md: it does not import qgraph.

`COMPUTE` has the arithmetic of each op; `SHAPES`, `RANGES`, `SEPARATE` its rules (spec_rules.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tests.helpers.spec_file import ENTRY, File, Refused, require

Attrs = Mapping[str, Any]
LEAST = np.iinfo(np.int64).min


# -- sums of products -----------------------------------------------------------------------------


def _places(a: Attrs, x: Any, kernel: tuple[int, int], fill: int) -> Any:
    """By tap: the values of x under it at every position of the window, [n, h', w', c]."""
    (top, bottom), (left, right) = a["pads"]
    (sh, sw), (dh, dw) = a["strides"], a.get("dilations", (1, 1))
    pads = ((0, 0), (top, bottom), (left, right), (0, 0))
    padded = np.pad(x, pads, constant_values=fill)
    rows = (padded.shape[1] - ((kernel[0] - 1) * dh + 1)) // sh + 1
    columns = (padded.shape[2] - ((kernel[1] - 1) * dw + 1)) // sw + 1
    for i, j in np.ndindex(*kernel):
        at = padded[:, i * dh :, j * dw :][:, ::sh, ::sw]
        yield (i, j), at[:, :rows, :columns]


def conv2d(a: Attrs, x: Any, w: Any) -> Any:
    groups, each = a["groups"], w.shape[3] // a["groups"]
    parts = []
    for g in range(groups):
        inputs = x[..., g * w.shape[2] : (g + 1) * w.shape[2]]
        filters = w[..., g * each : (g + 1) * each]
        taps = _places(a, inputs, w.shape[:2], 0)
        parts.append(sum(at @ filters[tap] for tap, at in taps))
    return np.concatenate(parts, axis=3)


def depthwise_conv2d(a: Attrs, x: Any, w: Any) -> Any:
    sums = sum(at[..., None] * w[tap] for tap, at in _places(a, x, w.shape[:2], 0))
    return sums.reshape(*sums.shape[:3], -1)


# -- one element at a time ------------------------------------------------------------------------


def clip(a: Attrs, x: Any) -> Any:
    t = x if a["low"] is None else np.maximum(x, a["low"])
    return t if a["high"] is None else np.minimum(t, a["high"])


def requantize(a: Attrs, x: Any) -> Any:
    shift, low, high = np.asarray(a["shift"], np.int64), a["low"], a["high"]
    r, left = np.clip(shift, 0, 62), np.clip(-shift, 0, 61)
    whole = x >> r
    rest, half = x - (whole << r), (np.int64(1) << r) >> 1
    even = rest + rest % 2
    up = {
        "half_even": (rest > half) | ((rest == half) & (whole % 2 == 1)),
        "half_up": rest >= half,
        "half_away": (rest > half) | ((rest == half) & (x >= 0)),
        "double": (even > half) | ((even == half) & (x >= 0)),
        "floor": rest < 0,
    }[a["rounding"]] & (r > 0)
    limit = np.int64(1) << (62 - left)
    t = np.clip(whole + up, -limit, limit) << left
    return overflowed(t, a["overflow"], low, high)


def overflowed(t: Any, overflow: str, low: int, high: int) -> Any:
    if overflow == "saturate":
        return np.clip(t, low, high)
    require(overflow == "wrap", f"unknown overflow {overflow}")
    codes = high - low + 1
    return (t % codes - low) % codes + low


def lookup(a: Attrs, x: Any, table: Any) -> Any:
    require((x - a["offset"]).min() >= 0, "a code has no entry")
    return table[x - a["offset"]]


# -- many elements at a time ----------------------------------------------------------------------


def max_pool(a: Attrs, x: Any) -> Any:
    return np.max([at for _, at in _places(a, x, a["ksize"], LEAST)], axis=0)


def reduce_max(a: Attrs, x: Any) -> Any:
    return x.max(axis=a["axes"], keepdims=a["keepdims"]) if a["axes"] else x


def standardize(a: Attrs, x: Any) -> Any:
    c = x.shape[-1]
    made = np.empty_like(x)
    for row in np.ndindex(*x.shape[:-1]):
        codes = [int(code) for code in x[row]]
        total, squares = sum(codes), sum(code * code for code in codes)
        square = (c * squares - total * total) * 4 ** a["guard"] + a["epsilon"]
        root = math.isqrt(square) + 1
        made[row] = [
            (2 * (c * code - total) * 2 ** a["shift"] + root) // (2 * root) for code in codes
        ]
    return made


def softmax(a: Attrs, x: Any, table: Any) -> Any:
    made = np.empty_like(x)
    for row in np.ndindex(*x.shape[:-1]):
        codes = [int(code) for code in x[row]]
        e = [int(table[min(max(codes) - code, len(table) - 1)]) for code in codes]
        total = sum(e)
        require(total > 0, "a softmax divides by 0")
        made[row] = [min((n * 2 ** a["bits"] + total // 2) // total, a["high"]) for n in e]
    return made


# -- moves ----------------------------------------------------------------------------------------


def slice_(a: Attrs, x: Any) -> Any:
    indices = [
        _indices(*part, size)
        for *part, size in zip(a["begin"], a["end"], a["strides"], x.shape, strict=True)
    ]
    return x[np.ix_(*indices)]


def _indices(begin: int, end: int | None, stride: int, size: int) -> list[int]:
    begin = begin + size if begin < 0 else begin
    end = end + size if end is not None and end < 0 else end
    before = (lambda i: end is None or i < end) if stride > 0 else lambda i: end is None or i > end
    inside = itertools.takewhile(
        lambda i: 0 <= i < size and before(i), itertools.count(begin, stride)
    )
    return list(inside)


def pad(a: Attrs, x: Any) -> Any:
    made = np.zeros(
        [b + size + e for (b, e), size in zip(a["paddings"], x.shape, strict=True)], int
    )
    inner = tuple(slice(b, b + size) for (b, _), size in zip(a["paddings"], x.shape, strict=True))
    made[inner] = x
    return made


COMPUTE = {
    "conv2d": conv2d,
    "depthwise_conv2d": depthwise_conv2d,
    "matmul": lambda a, x, w: x @ w,
    "batch_matmul": lambda a, x, y: (x[..., :, :, None] * y[..., None, :, :]).sum(-2),
    "add": lambda a, x, y: x + y,
    "sub": lambda a, x, y: x - y,
    "mul": lambda a, x, y: x * y,
    "maximum": lambda a, x, y: np.where(x >= y, x, y),
    "minimum": lambda a, x, y: np.where(x <= y, x, y),
    "abs": lambda a, x: np.where(x >= 0, x, -x),
    "clip": clip,
    "requantize": requantize,
    "lookup": lookup,
    "max_pool": max_pool,
    "reduce_max": reduce_max,
    "reshape": lambda a, x: x.reshape(a["shape"]),
    "transpose": lambda a, x: np.transpose(x, a["perm"]),
    "slice": slice_,
    "concat": lambda a, *xs: np.concatenate(xs, axis=a["axis"]),
    "pad": pad,
    "take": lambda a, x: np.take(x, a["indices"], axis=a["axis"]),
    "embedding": lambda a, x, table: table[x],
    "standardize": standardize,
    "softmax": softmax,
}


# -- runs -----------------------------------------------------------------------------------------


def run(
    file: File, codes: Mapping[str, Any], keep: Collection[str] | None = None
) -> dict[str, Any]:
    """Codes of the exits, or of the tensors in `keep`."""
    require(all(name in codes for name in file.entries), "an entry has no codes")
    values = {name: np.asarray(codes[name], np.int64) for name in file.entries}
    samples = {len(values[name]) for name in file.entries} if file.batch_free else {1}
    require(len(samples) == 1, "entries have different numbers of samples")
    values |= {name: t.codes for name, t in file.tensors.items() if t.codes is not None}
    for step in file.steps:
        operands = [values[name] for name in step.inputs]
        attrs = step.attrs
        if step.op == "reshape" and file.batch_free:
            attrs = {"shape": (*samples, *attrs["shape"][1:])}
        made = COMPUTE[step.op](attrs, *operands)
        tensor = file.tensors[step.output]
        shape = (*samples, *tensor.shape[1:]) if file.batch_free else tensor.shape
        require(made.shape == shape, f"{step.output}: another shape")
        require(tensor.low <= made.min() and made.max() <= tensor.high, f"{step.output}: range")
        values[step.output] = made
    return {name: values[name] for name in (file.exits if keep is None else keep)}


def check_order(file: File) -> None:
    """Check that operands exist when a step runs, and that nothing is computed twice."""
    given = {n for n, t in file.tensors.items() if t.codes is not None or t.kind == ENTRY}
    for step in file.steps:
        require(given.issuperset(step.inputs), f"{step.output}: used before it is made")
        require(step.output not in given, f"{step.output}: made twice")
        given.add(step.output)
    require(given.issuperset(file.exits), "an exit is never made")


# -- numbers and codes ----------------------------------------------------------------------------


def rounded(x: Any, rounding: str) -> Any:
    """Floats to whole numbers."""
    whole = np.floor(x)
    rest = x - whole
    up = {
        "half_even": (rest > 0.5) | ((rest == 0.5) & (whole % 2 == 1)),
        "half_up": rest >= 0.5,
        "half_away": (rest > 0.5) | ((rest == 0.5) & (x > 0)),
        "double": (rest > 0.5) | ((rest == 0.5) & (x > 0)),
        "floor": rest < 0,
    }[rounding]
    return whole + up


def to_codes(x: Any, bits: int, signed: bool, exponent: int, rounding: str, overflow: str) -> Any:
    """Codes of an entry."""
    low = -(2 ** (bits - 1)) if signed else 0
    high = low + 2**bits - 1
    t = rounded(np.asarray(x, np.float64) * 2.0**exponent, rounding)
    if np.isnan(t).any() or (overflow == "wrap" and np.isinf(t).any()):
        raise Refused("no code stands for this number")
    return overflowed(t, overflow, low, high).astype(np.int64)


def to_numbers(codes: Any, exponent: int | tuple[int, ...]) -> Any:
    """Values of the codes of an exit."""
    return codes * 2.0 ** -np.asarray(exponent, np.float64)
