"""Ops on many elements at once: the maximum in a window or along axes, layer norms."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops.integer_softmax import softmax_of
from qgraph.ir.ops.sliding import largest
from qgraph.ir.ops.standardize import Standardization, standardized
from qgraph.ir.types import Codes
from qgraph.ops.attributes import Attributes, attribute
from qgraph.ops.reach import Reach
from qgraph.ops.shapes import Sizes
from qgraph.ops.windows import ONE, MaxPoolAttrs, slid
from qgraph.program.ops.base import AnyProgramOp, Index, Manual, OpClass, Operand, ProgramOp
from qgraph.program.ops.elementwise import ALWAYS, MORE_THAN_CHANNELS, always
from qgraph.program.ops.movement import joined
from qgraph.program.ops.products import SLIDES, taps_of


@dataclass(frozen=True)
class ReduceMaxAttrs(Attributes):
    """Axes. Raises GraphError where they are not in ascending order."""

    axes: tuple[int, ...] = attribute("the axes that are reduced, ascending", low=0)
    keepdims: bool = attribute(
        "True to keep reduced axes with size 1", choices=(False, True), default=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if list(self.axes) != sorted(set(self.axes)):
            raise GraphError(f"attribute `axes` is {self.axes}, not ascending")


@dataclass(frozen=True)
class StandardizeAttrs(Attributes):
    """The numbers of a layer norm (docs/numerics.md, section 7)."""

    guard: int = attribute("fractional bits of the root", low=0, high=26)
    epsilon: int = attribute(
        "added to the square, in units that include the guard bits", low=0, high=1 << 52
    )
    shift: int = attribute("left shift of the deviations, in bits", low=0, high=62)


@dataclass(frozen=True)
class SoftmaxProgramAttrs(Attributes):
    """The scale and the range of a softmax (docs/numerics.md, section 8)."""

    bits: int = attribute("fractional bits of the result", low=0, high=32)
    high: int = attribute("highest code", low=0, high=1 << 32)


# -- shapes -------------------------------------------------------------------------------------


def _pool_shape(attrs: MaxPoolAttrs, shapes: Sequence[Sizes]) -> Sizes:
    x = shapes[0]
    if len(x) != 4:
        raise GraphError(f"needs an operand of rank 4, found {x}")
    return (x[0], *slid(x[1:3], attrs.ksize, attrs.strides, attrs.pads), x[3])


def _reduced_shape(attrs: ReduceMaxAttrs, shapes: Sequence[Sizes]) -> Sizes:
    x = shapes[0]
    if any(axis >= len(x) for axis in attrs.axes):
        raise GraphError(f"attribute `axes` is {attrs.axes} for shape {x}")
    if attrs.keepdims:
        return tuple(1 if axis in attrs.axes else size for axis, size in enumerate(x))
    return tuple(size for axis, size in enumerate(x) if axis not in attrs.axes)


def _channels_shape(attrs: StandardizeAttrs, shapes: Sequence[Sizes]) -> Sizes:
    if not shapes[0]:
        raise GraphError("needs an operand with channels, found a scalar")
    return shapes[0]


def _softmax_shape(attrs: SoftmaxProgramAttrs, shapes: Sequence[Sizes]) -> Sizes:
    x, table = shapes
    if not x or len(table) != 1 or not table[0]:
        raise GraphError(f"needs channels and a table of rank 1, found {list(shapes)}")
    return x


# -- arithmetic and ranges ----------------------------------------------------------------------


def _max_pool(attrs: MaxPoolAttrs, inputs: Sequence[Codes]) -> Codes:
    return largest(inputs[0], attrs.ksize, attrs.strides, attrs.pads)


def _reduce_max(attrs: ReduceMaxAttrs, inputs: Sequence[Codes]) -> Codes:
    result: Codes = np.max(inputs[0], axis=attrs.axes, keepdims=attrs.keepdims)
    return result


def _standardize(attrs: StandardizeAttrs, inputs: Sequence[Codes]) -> Codes:
    numbers = Standardization(attrs.guard, attrs.epsilon, attrs.shift)
    return standardized(inputs[0], numbers)


def _standardize_reach(attrs: StandardizeAttrs, inputs: Sequence[Operand]) -> Reach:
    """No channel is more than sqrt(channels - 1) deviations from the mean."""
    channels = inputs[0].shape[-1]
    limit = isqrt((channels - 1 << 2 * attrs.shift) >> 2 * attrs.guard) + 1
    return Reach(-limit, limit, limit)


def _softmax(attrs: SoftmaxProgramAttrs, inputs: Sequence[Codes]) -> Codes:
    x, table = inputs
    return softmax_of(x, table, attrs.bits, attrs.high)


def _softmax_reach(attrs: SoftmaxProgramAttrs, inputs: Sequence[Operand]) -> Reach:
    return Reach(0, attrs.high, attrs.high)


# -- structure ----------------------------------------------------------------------------------


def _pool_sources(
    attrs: MaxPoolAttrs, inputs: Sequence[Codes], index: Index
) -> list[tuple[int, Index]]:
    shape = inputs[0].shape
    taps = taps_of(shape, attrs.ksize, attrs.strides, ONE, attrs.pads, index)
    return [(0, (*place, index[3])) for _, place in taps]


def _reduced_sources(
    attrs: ReduceMaxAttrs, inputs: Sequence[Codes], index: Index
) -> list[tuple[int, Index]]:
    rest = list(index)
    if not attrs.keepdims:
        for axis in attrs.axes:
            rest.insert(axis, 0)
    ranges = [
        range(size) if axis in attrs.axes else (rest[axis],)
        for axis, size in enumerate(inputs[0].shape)
    ]
    return [(0, at) for at in itertools.product(*ranges)]


def _row_sources(
    attrs: StandardizeAttrs, inputs: Sequence[Codes], index: Index
) -> list[tuple[int, Index]]:
    return [(0, (*index[:-1], c)) for c in range(inputs[0].shape[-1])]


def _softmax_sources(
    attrs: SoftmaxProgramAttrs, inputs: Sequence[Codes], index: Index
) -> list[tuple[int, Index]]:
    x, table = inputs
    row = x[index[:-1]]
    entries = sorted({min(int(row.max() - code), len(table) - 1) for code in row})
    codes: list[tuple[int, Index]] = [(0, (*index[:-1], c)) for c in range(len(row))]
    return [*codes, *((1, (entry,)) for entry in entries)]


COMPARED = "none: every result is a code of x"

OPS: tuple[AnyProgramOp, ...] = (
    ProgramOp(
        "max_pool",
        11,
        OpClass.ROW,
        ("x",),
        MaxPoolAttrs,
        Manual(
            "The largest code in each window of x [n, h, w, c], for each channel. Pads must be "
            "smaller than the window.",
            f"[n, h', w', c] where {SLIDES}, and the dilation is 1",
            "y[n, i, j, c] = the largest of x[n, i*sh - top + a, j*sw - left + b, c]\n"
            "    for a and b in the window; places outside the image are ignored",
            "that of x",
            COMPARED,
            ALWAYS,
        ),
        _pool_shape,
        _max_pool,
        joined,
        always,
        _pool_sources,
    ),
    ProgramOp(
        "reduce_max",
        12,
        OpClass.REDUCTION,
        ("x",),
        ReduceMaxAttrs,
        Manual(
            "The largest code along axes.",
            "that of x without `axes`, or with size 1 there if `keepdims`",
            "y[j] = the largest of x[i] over all i that are j outside of `axes`",
            "that of x",
            COMPARED,
            "if `axes` does not contain 0",
        ),
        _reduced_shape,
        _reduce_max,
        joined,
        lambda attrs, inputs, made: 0 not in attrs.axes,
        _reduced_sources,
        file=("keepdims", "axes"),
    ),
    ProgramOp(
        "standardize",
        19,
        OpClass.ROW,
        ("x",),
        StandardizeAttrs,
        Manual(
            "Subtracts the mean of the last axis from its codes and divides by their deviation: "
            "the integer part of a layer norm.",
            "that of x",
            "for each row of c channels: total = sum of x, squares = sum of x*x\n"
            "square = (c * squares - total * total) * 4^guard + epsilon\n"
            "root = floor(sqrt(square)) + 1\n"
            "y[k] = floor((2 * (c * x[k] - total) * 2^shift + root) / (2 * root))",
            "-limit to limit with limit = floor(sqrt((c - 1) * 4^shift / 4^guard)) + 1; limit is "
            "the magnitude",
            "none in 64 bits: `square` must stay below 2^52 and the numerator of y below 2^62; the "
            "choice of `guard` and `shift` ensures this",
            MORE_THAN_CHANNELS,
        ),
        _channels_shape,
        _standardize,
        _standardize_reach,
        lambda attrs, inputs, made: len(made) > 1,
        _row_sources,
    ),
    ProgramOp(
        "softmax",
        22,
        OpClass.ROW,
        ("x", "table"),
        SoftmaxProgramAttrs,
        Manual(
            "Shares of the last axis: entries of a table by the distance from the largest code, "
            "divided by their sum. The table holds exponentials, none of them negative and the "
            "first of them above 0.",
            "that of x",
            "for each row of c channels: most = the largest of x\n"
            "e[k] = table[min(most - x[k], entries - 1)]\n"
            "total = sum of e\n"
            "y[k] = min(floor((e[k] * 2^bits + floor(total / 2)) / total), high)",
            "0 to high; high is the magnitude",
            "none in 64 bits: entries are below 2^16 and `bits` at most 32",
            MORE_THAN_CHANNELS,
        ),
        _softmax_shape,
        _softmax,
        _softmax_reach,
        lambda attrs, inputs, made: len(made) > 1,
        _softmax_sources,
    ),
)
