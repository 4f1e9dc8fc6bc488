"""Rules of docs/integer_program.md, written only from it: shapes, ranges, samples. No qgraph."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.helpers.spec_file import File, require
from tests.helpers.spec_interpreter import _indices

Attrs = Mapping[str, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Known:
    """An operand before a run; `codes` of a constant."""

    shape: Shape
    low: int
    high: int
    magnitude: int
    codes: Any = None


# -- shapes ---------------------------------------------------------------------------------------


def _slid(a: Attrs, x: Shape, kernel: Sequence[int]) -> Shape:
    made = []
    for axis in (0, 1):
        size, (before, after) = x[1 + axis], a["pads"][axis]
        dilation = a.get("dilations", (1, 1))[axis]
        last_start = size + before + after - ((kernel[axis] - 1) * dilation + 1)
        require(last_start >= 0, "a window does not fit")
        made.append(last_start // a["strides"][axis] + 1)
    return tuple(made)


def _together(a: Attrs, x: Shape, y: Shape) -> Shape:
    made: list[int] = []
    for p, q in itertools.zip_longest(reversed(x), reversed(y), fillvalue=1):
        require(p == q or 1 in (p, q), "shapes do not fit together")
        made.insert(0, q if p == 1 else p)
    return tuple(made)


def _reduced(a: Attrs, x: Shape) -> Shape:
    kept = ((i, size) for i, size in enumerate(x) if a["keepdims"] or i not in a["axes"])
    return tuple(1 if i in a["axes"] else size for i, size in kept)


def _sliced(a: Attrs, x: Shape) -> Shape:
    parts = zip(a["begin"], a["end"], a["strides"], x, strict=True)
    return tuple(len(_indices(*part)) for part in parts)


def _along(axis: int, x: Shape, size: int) -> Shape:
    return (*x[:axis], size, *x[axis + 1 :])


SHAPES = {
    "conv2d": lambda a, x, w: (x[0], *_slid(a, x, w), w[3]),
    "depthwise_conv2d": lambda a, x, w: (x[0], *_slid(a, x, w), w[2] * w[3]),
    "matmul": lambda a, x, w: (x[0], w[1]),
    "batch_matmul": lambda a, x, y: (*_together(a, x[:-2], y[:-2]), x[-2], y[-1]),
    **dict.fromkeys(("add", "sub", "mul", "maximum", "minimum"), _together),
    **dict.fromkeys(("abs", "clip", "requantize", "standardize"), lambda a, x: x),
    **dict.fromkeys(("lookup", "softmax"), lambda a, x, table: x),
    "embedding": lambda a, x, table: (*x, *table[1:]),
    "max_pool": lambda a, x: (x[0], *_slid(a, x, a["ksize"]), x[3]),
    "reduce_max": _reduced,
    "reshape": lambda a, x: a["shape"],
    "transpose": lambda a, x: tuple(x[axis] for axis in a["perm"]),
    "slice": _sliced,
    "concat": lambda a, *xs: _along(a["axis"], xs[0], sum(x[a["axis"]] for x in xs)),
    "pad": lambda a, x: tuple(b + n + e for (b, e), n in zip(a["paddings"], x, strict=True)),
    "take": lambda a, x: _along(a["axis"], x, len(a["indices"])),
}


# -- ranges: (low, high, magnitude) ---------------------------------------------------------------


def _products(by_channel: Any, masks: Any) -> Any:
    """by_channel: filters as [kh, kw, terms, outputs]; masks: taps inside the image."""

    def reach(a: Attrs, x: Known, w: Known) -> Any:
        if w.codes is None:
            ends = [p * q for p in (x.low, x.high) for q in (w.low, w.high)]
            terms = math.prod(by_channel(np.empty(w.shape, "?")).shape[:3])
            magnitude = x.magnitude * w.magnitude
            return min(0, *ends) * terms, max(0, *ends) * terms, magnitude * terms
        low, high = min(x.low, 0), max(x.high, 0)
        filters = by_channel(w.codes)
        lows, highs, magnitudes = [], [], []
        for mask in masks(a, x.shape, filters.shape):
            terms = filters[mask]
            axes = (0, 1)
            highs.append(np.maximum(terms * low, terms * high).sum(axes).max())
            lows.append(np.minimum(terms * low, terms * high).sum(axes).min())
            magnitudes.append(np.abs(terms).sum(axes).max() * x.magnitude)
        return int(min(lows)), int(max(highs)), int(max(magnitudes))

    return reach


def _everything(a: Attrs, image: Shape, filters: Shape) -> Any:
    return [np.ones(filters[:2], bool)]


def _windows(a: Attrs, image: Shape, filters: Shape) -> Any:
    """The taps inside the image, for every position of the window."""
    rows, columns = (
        {
            tuple(
                0 <= i * a["strides"][axis] - a["pads"][axis][0] + t * a["dilations"][axis]
                < image[1 + axis]
                for t in range(filters[axis])
            )
            for i in range(count)
        }
        for axis, count in enumerate(_slid(a, image, filters))
    )  # fmt: skip
    return [np.logical_and.outer(row, column) for row in rows for column in columns]


def _depthwise(w: Any) -> Any:
    return w.reshape(*w.shape[:2], 1, -1)


def _mul(a: Attrs, x: Known, y: Known) -> Any:
    ends = [p * q for p in (x.low, x.high) for q in (y.low, y.high)]
    return min(ends), max(ends), x.magnitude * y.magnitude


def _multiplied(a: Attrs, x: Known, y: Known) -> Any:
    low, high, magnitude = _mul(a, x, y)
    terms = x.shape[-1]
    return min(low, 0) * terms, max(high, 0) * terms, magnitude * terms


def _clipped(a: Attrs, x: Known) -> Any:
    def ends(code: int) -> Any:
        made = code if a["low"] is None else np.maximum(code, a["low"])
        return made if a["high"] is None else np.minimum(made, a["high"])

    return int(np.min(ends(x.low))), int(np.max(ends(x.high))), x.magnitude


def _joined(a: Attrs, *xs: Known) -> Any:
    return min(x.low for x in xs), max(x.high for x in xs), max(x.magnitude for x in xs)


def _standardized(a: Attrs, x: Known) -> Any:
    limit = math.isqrt((x.shape[-1] - 1) * 4 ** a["shift"] // 4 ** a["guard"]) + 1
    return -limit, limit, limit


def _sum(a: Attrs, x: Known, y: Known) -> Any:
    return x.low + y.low, x.high + y.high, x.magnitude + y.magnitude


def _difference(a: Attrs, x: Known, y: Known) -> Any:
    return x.low - y.high, x.high - y.low, x.magnitude + y.magnitude


def _picked(pick: Any) -> Any:
    return lambda a, x, y: (
        pick(x.low, y.low),
        pick(x.high, y.high),
        max(x.magnitude, y.magnitude),
    )


def _row(a: Attrs, x: Known, table: Known) -> Any:
    require(x.low >= 0 and x.high < table.shape[0], "a code has no row")
    return _ends(table.low, table.high)


def _ends(low: int, high: int) -> Any:
    return low, high, max(-low, high)


MOVES = ("max_pool", "reduce_max", "reshape", "transpose", "slice", "concat", "take")
RANGES = {
    "conv2d": _products(lambda w: w, _windows),
    "depthwise_conv2d": _products(_depthwise, _windows),
    "matmul": _products(lambda w: w[None, None], _everything),
    "batch_matmul": _multiplied,
    "add": _sum,
    "sub": _difference,
    "mul": _mul,
    "maximum": _picked(max),
    "minimum": _picked(min),
    "abs": lambda a, x: (max(x.low, -x.high, 0), max(-x.low, x.high), x.magnitude),
    "clip": _clipped,
    "requantize": lambda a, x: _ends(a["low"], a["high"]),
    "lookup": lambda a, x, table: _ends(table.low, table.high),
    "embedding": _row,
    **dict.fromkeys(MOVES, _joined),
    "pad": lambda a, x: (min(x.low, 0), max(x.high, 0), x.magnitude),
    "standardize": _standardized,
    "softmax": lambda a, x, table: (0, a["high"], a["high"]),
}


# -- samples stay apart ---------------------------------------------------------------------------


def _weights_are_constant(a: Attrs, y: Shape, x: Known, w: Known) -> bool:
    return w.codes is not None and x.codes is None


def _by_sample(a: Attrs, y: Shape, *xs: Known) -> bool:
    def fits(x: Known) -> bool:
        if x.codes is None:
            return len(x.shape) == len(y)
        return len(x.shape) < len(y) or x.shape[0] == 1

    return all(map(fits, xs))


def _matrices(a: Attrs, y: Shape, *xs: Known) -> bool:
    one_varies = any(x.codes is None for x in xs)
    return _by_sample(a, y, *xs) and one_varies if len(y) > 2 else _weights_are_constant(a, y, *xs)


def _more_than_channels(a: Attrs, y: Shape, x: Known) -> bool:
    return len(y) > 1 or not any(isinstance(value, tuple) for value in a.values())


def _always(a: Attrs, y: Shape, *xs: Known) -> bool:
    return True


def _first_axis_is_whole(a: Attrs, y: Shape, x: Known) -> bool:
    return (a["begin"][0], a["end"][0], a["strides"][0]) == (0, None, 1)


SEPARATE = {
    **dict.fromkeys(("conv2d", "depthwise_conv2d", "matmul"), _weights_are_constant),
    "batch_matmul": _matrices,
    **dict.fromkeys(("add", "sub", "mul", "maximum", "minimum"), _by_sample),
    **dict.fromkeys(("clip", "requantize"), _more_than_channels),
    **dict.fromkeys(("abs", "lookup", "embedding", "max_pool", "reshape"), _always),
    "reduce_max": lambda a, y, x: 0 not in a["axes"],
    "transpose": lambda a, y, x: a["perm"][0] == 0,
    "slice": _first_axis_is_whole,
    "concat": lambda a, y, *xs: a["axis"] != 0 and all(x.codes is None for x in xs),
    "pad": lambda a, y, x: a["paddings"][0] == (0, 0),
    "take": lambda a, y, x: a["axis"] != 0,
    "standardize": lambda a, y, x: len(y) > 1,
    "softmax": lambda a, y, x, table: len(y) > 1,
}


def check(file: File) -> None:
    """Check that shapes follow from ops, and that no step mixes samples. Raises Refused."""
    for step in file.steps:
        operands = [file.tensors[name] for name in step.inputs]
        known = [Known(t.shape, t.low, t.high, t.magnitude, t.codes) for t in operands]
        made = file.tensors[step.output].shape
        found = SHAPES[step.op](step.attrs, *(t.shape for t in known))
        require(tuple(found) == made, f"{step.output}: {found} is not {made}")
        if file.batch_free:
            require(made[:1] == (1,), f"{step.output}: its first axis is not the batch")
            require(SEPARATE[step.op](step.attrs, made, *known), f"{step.output}: mixes samples")
