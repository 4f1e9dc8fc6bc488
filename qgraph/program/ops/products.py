"""Sums of products: convolutions and matrix products."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import GraphError
from qgraph.exact.sums import Mask, seen_taps, sums_of_products
from qgraph.ir.ops.sliding import convolved, convolved_by_channel
from qgraph.ir.types import Codes
from qgraph.ops.attribute_types import Pads, Pair
from qgraph.ops.attributes import Attributes, attribute
from qgraph.ops.reach import Reach, reach_of_products
from qgraph.ops.shapes import Sizes
from qgraph.ops.windows import NO_PADS, ONE, slid
from qgraph.program.ops.base import AnyProgramOp, Index, Manual, OpClass, Operand, ProgramOp
from qgraph.program.ops.elementwise import broadcast


@dataclass(frozen=True)
class WindowAttrs(Attributes):
    """A window that slides over height and width."""

    strides: Pair = attribute("positions from one window to the next", low=1, default=ONE)
    dilations: Pair = attribute("positions from one tap to the next", low=1, default=ONE)
    pads: Pads = attribute("zeros around the image", low=0, default=NO_PADS)


@dataclass(frozen=True)
class Conv2dAttrs(WindowAttrs):
    """A convolution."""

    groups: int = attribute(
        "groups of channels; each has its own filters and outputs", low=1, default=1
    )


@dataclass(frozen=True)
class MatmulAttrs(Attributes):
    """A product of matrices has no attributes."""


# -- shapes -------------------------------------------------------------------------------------


def _ranks(shapes: Sequence[Sizes], rank: int) -> None:
    if any(len(shape) != rank for shape in shapes):
        raise GraphError(f"needs operands of rank {rank}, found {list(shapes)}")


def _conv2d_shape(attrs: Conv2dAttrs, shapes: Sequence[Sizes]) -> Sizes:
    _ranks(shapes, 4)
    x, w = shapes
    groups = attrs.groups
    if x[3] % groups or w[3] % groups or w[2] != x[3] // groups:
        raise GraphError(f"{x[3]} channels in {groups} groups do not fit filters {w}")
    return (x[0], *slid(x[1:3], w, attrs.strides, attrs.pads, attrs.dilations), w[3])


def _depthwise_shape(attrs: WindowAttrs, shapes: Sequence[Sizes]) -> Sizes:
    _ranks(shapes, 4)
    x, w = shapes
    if w[2] != x[3]:
        raise GraphError(f"{x[3]} channels do not fit filters {w}")
    return (x[0], *slid(x[1:3], w, attrs.strides, attrs.pads, attrs.dilations), w[2] * w[3])


def _matmul_shape(attrs: MatmulAttrs, shapes: Sequence[Sizes]) -> Sizes:
    _ranks(shapes, 2)
    x, w = shapes
    if x[1] != w[0]:
        raise GraphError(f"{x} and {w} cannot be multiplied")
    return (x[0], w[1])


def _batch_matmul_shape(attrs: MatmulAttrs, shapes: Sequence[Sizes]) -> Sizes:
    a, b = shapes
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise GraphError(f"{a} and {b} cannot be multiplied")
    return (*broadcast(attrs, (a[:-2], b[:-2])), a[-2], b[-1])


# -- arithmetic ---------------------------------------------------------------------------------


def _conv2d(attrs: Conv2dAttrs, inputs: Sequence[Codes]) -> Codes:
    x, w = inputs
    return convolved(x, w, attrs.strides, attrs.dilations, attrs.pads)


def _depthwise(attrs: WindowAttrs, inputs: Sequence[Codes]) -> Codes:
    x, w = inputs
    return convolved_by_channel(x, w, attrs.strides, attrs.dilations, attrs.pads)


def _matmul(attrs: MatmulAttrs, inputs: Sequence[Codes]) -> Codes:
    return np.matmul(*inputs)


# -- ranges -------------------------------------------------------------------------------------


def windows_of(attrs: Attributes, image: Sizes, filters: Sizes) -> Sequence[Mask]:
    """Sets of taps inside the image, as masks; see `qgraph.exact.sums.seen_taps`."""
    if not isinstance(attrs, WindowAttrs):
        return (True,)
    return seen_taps(image[1:3], filters[:2], attrs.strides, attrs.dilations, attrs.pads)


def _reach(op: str, attrs: Attributes, inputs: Sequence[Operand]) -> Reach:
    x, w = inputs
    if w.codes is not None:
        windows = windows_of(attrs, x.shape, w.shape)
        sums = sums_of_products(op, w.codes, x.low, x.high, x.magnitude, windows)
        return Reach(int(sums.lows.min()), int(sums.highs.max()), int(sums.magnitudes.max()))
    terms = w.shape[0] if op == "matmul" else math.prod(w.shape[: 2 if op != "conv2d" else 3])
    return reach_of_products(x, w, terms)


def _conv2d_reach(attrs: Conv2dAttrs, inputs: Sequence[Operand]) -> Reach:
    return _reach("conv2d", attrs, inputs)


def _depthwise_reach(attrs: WindowAttrs, inputs: Sequence[Operand]) -> Reach:
    return _reach("depthwise_conv2d", attrs, inputs)


def _matmul_reach(attrs: MatmulAttrs, inputs: Sequence[Operand]) -> Reach:
    return _reach("matmul", attrs, inputs)


def _batch_matmul_reach(attrs: MatmulAttrs, inputs: Sequence[Operand]) -> Reach:
    a, b = inputs
    return reach_of_products(a, b, a.shape[-1])


# -- structure ----------------------------------------------------------------------------------


def _constant_weights(attrs: Attributes, inputs: Sequence[Operand], made: Sizes) -> bool:
    return not inputs[0].constant and inputs[1].constant


def _matrices_are_separate(attrs: MatmulAttrs, inputs: Sequence[Operand], made: Sizes) -> bool:
    def fits(x: Operand) -> bool:
        whole = len(x.shape) == len(made)
        return (not whole or x.shape[0] == 1) if x.constant else whole

    if len(made) == 2:
        return _constant_weights(attrs, inputs, made)
    return all(map(fits, inputs)) and not all(x.constant for x in inputs)


def taps_of(
    image: Sizes, kernel: Sequence[int], strides: Pair, dilations: Pair, pads: Pads, index: Index
) -> Iterator[tuple[Pair, Index]]:
    """Taps inside the image for one output: (tap, position in the image without its channel)."""
    for i, j in np.ndindex(*kernel):
        row, column = (
            index[1 + axis] * strides[axis] - pads[axis][0] + tap * dilations[axis]
            for axis, tap in enumerate((i, j))
        )
        if 0 <= row < image[1] and 0 <= column < image[2]:
            yield (i, j), (index[0], row, column)


def _conv2d_sources(
    attrs: Conv2dAttrs, inputs: Sequence[Codes], index: Index
) -> list[tuple[int, Index]]:
    x, w = inputs
    channels, outputs = w.shape[2:]
    first = index[3] // (outputs // attrs.groups) * channels
    found: list[tuple[int, Index]] = []
    for tap, place in _taps(attrs, x, w, index):
        for c in range(channels):
            found += [(0, (*place, first + c)), (1, (*tap, c, index[3]))]
    return found


def _depthwise_sources(
    attrs: WindowAttrs, inputs: Sequence[Codes], index: Index
) -> list[tuple[int, Index]]:
    x, w = inputs
    c, m = divmod(index[3], w.shape[3])
    found: list[tuple[int, Index]] = []
    for tap, place in _taps(attrs, x, w, index):
        found += [(0, (*place, c)), (1, (*tap, c, m))]
    return found


def _taps(attrs: WindowAttrs, x: Codes, w: Codes, index: Index) -> Iterator[tuple[Pair, Index]]:
    return taps_of(x.shape, w.shape[:2], attrs.strides, attrs.dilations, attrs.pads, index)


def _matmul_sources(
    attrs: MatmulAttrs, inputs: Sequence[Codes], index: Index
) -> list[tuple[int, Index]]:
    row, column = index
    return [pair for k in range(inputs[1].shape[0]) for pair in ((0, (row, k)), (1, (k, column)))]


def _batch_matmul_sources(
    attrs: MatmulAttrs, inputs: Sequence[Codes], index: Index
) -> list[tuple[int, Index]]:
    *batch, row, column = index
    a, b = (
        tuple(
            0 if size == 1 else batch[axis - (x.ndim - 2)] for axis, size in enumerate(x.shape[:-2])
        )
        for x in inputs
    )
    terms = range(inputs[0].shape[-1])
    return [pair for k in terms for pair in ((0, (*a, row, k)), (1, (*b, k, column)))]


SLIDES = (
    "`out = (size + before + after - ((kernel - 1) * dilation + 1)) // stride + 1` for height and "
    "for width; `before` and `after` are the pads"
)
REACH_OF_SUMS = (
    "with constant weights, for each output channel and each place of the window, over the terms "
    "inside the image: from `sum(min(w * low, w * high))` to `sum(max(w * low, w * high))`, where "
    "low is min(x.low, 0) and high is max(x.high, 0); the magnitude is `sum(|w|) * x.magnitude`. "
    "The range of the result is from the smallest of these lows to the largest of these highs, "
    "with the largest of these magnitudes. With computed weights: the range of the product of one "
    "element of each operand, widened to include 0, times the number of terms of a sum; the "
    "magnitude is the product of the magnitudes, times this number"
)
CONSTANT_WEIGHTS = "if w is constant and x is not"
SUMS_OVERFLOW = (
    "none: sums are exact. A program is refused if `magnitude` exceeds 2^53; below this, every "
    "partial sum is exact in any order. The range determines how many bits an accumulator needs"
)

OPS: tuple[AnyProgramOp, ...] = (
    ProgramOp(
        "conv2d",
        0,
        OpClass.PRODUCT,
        ("x", "w"),
        Conv2dAttrs,
        Manual(
            "A convolution of images x [n, h, w, c] with filters w [kh, kw, c / groups, outputs].",
            f"[n, h', w', outputs] where {SLIDES}",
            "y[n, i, j, o] = sum over a, b, k of\n"
            "    x[n, i*sh - top + a*dh, j*sw - left + b*dw, g*(c/groups) + k] * w[a, b, k, o]\n"
            "with g = o // (outputs / groups); terms outside of the image are 0",
            REACH_OF_SUMS,
            SUMS_OVERFLOW,
            CONSTANT_WEIGHTS,
        ),
        _conv2d_shape,
        _conv2d,
        _conv2d_reach,
        _constant_weights,
        _conv2d_sources,
    ),
    ProgramOp(
        "depthwise_conv2d",
        1,
        OpClass.PRODUCT,
        ("x", "w"),
        WindowAttrs,
        Manual(
            "A convolution of each channel of x [n, h, w, c] with its filters, w [kh, kw, c, m].",
            f"[n, h', w', c * m] where {SLIDES}",
            "y[n, i, j, c*m + q] = sum over a, b of\n"
            "    x[n, i*sh - top + a*dh, j*sw - left + b*dw, c] * w[a, b, c, q]\n"
            "for q below m; terms outside of the image are 0",
            REACH_OF_SUMS,
            SUMS_OVERFLOW,
            CONSTANT_WEIGHTS,
        ),
        _depthwise_shape,
        _depthwise,
        _depthwise_reach,
        _constant_weights,
        _depthwise_sources,
    ),
    ProgramOp(
        "matmul",
        2,
        OpClass.PRODUCT,
        ("x", "w"),
        MatmulAttrs,
        Manual(
            "The product of matrices x [n, k] and w [k, m].",
            "[n, m]",
            "y[i, j] = sum over k of x[i, k] * w[k, j]",
            REACH_OF_SUMS,
            SUMS_OVERFLOW,
            CONSTANT_WEIGHTS,
        ),
        _matmul_shape,
        _matmul,
        _matmul_reach,
        _constant_weights,
        _matmul_sources,
    ),
    ProgramOp(
        "batch_matmul",
        21,
        OpClass.MATRIX,
        ("a", "b"),
        MatmulAttrs,
        Manual(
            "The products of matrices a [..., n, k] and b [..., k, m]. Axes in front of these are "
            "broadcast: those of size 1 repeat, missing axes are in front.",
            "[..., n, m], with the broadcast axes in front",
            "y[..., i, j] = sum over l of a[..., i, l] * b[..., l, j]",
            "the range of the product of one element of each operand, widened to include 0, times "
            "k; the magnitude is the product of the magnitudes, times k",
            SUMS_OVERFLOW,
            "if y has more than two axes, operands that are not constant have as many axes as y, "
            "and those that are constant have fewer, or size 1 along the first; with two axes, if "
            "b is constant and a is not",
        ),
        _batch_matmul_shape,
        _matmul,
        _batch_matmul_reach,
        _matrices_are_separate,
        _batch_matmul_sources,
    ),
)
