"""Pools and reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops.attributes import AxesAttrs, AxisAttrs, SlidingAttrs
from qgraph.ir.ops.base import (
    AnyOp,
    Elements,
    OpDef,
    Scale,
    always,
    as_its_inputs,
    axis_of,
    image_sizes,
    moved,
    reach_of_inputs,
)
from qgraph.ir.ops.sliding import largest, lowest
from qgraph.ir.ops.windows import explicit_pads, out_sizes, padded, taps
from qgraph.ir.types import Array, Shape, TensorType
from qgraph.ops.attribute_types import Pads, Pair
from qgraph.ops.attributes import A, attribute

ONE = (1, 1)


@dataclass(frozen=True, kw_only=True)
class PoolAttrs(SlidingAttrs):
    """A window whose elements become one; padding does not count."""

    ksize: Pair = attribute("size of the window", low=1)

    def pads(self, image: Sequence[int]) -> Pads:
        """Explicit padding for an image of this height and width."""
        return explicit_pads(image, self.ksize, self.strides, ONE, self.padding)


@dataclass(frozen=True, kw_only=True)
class ReductionAttrs(AxesAttrs):
    """Axes whose elements become one."""

    keepdims: bool = attribute("whether the axes stay, with size 1")


@dataclass(frozen=True, kw_only=True)
class ArgmaxAttrs(AxisAttrs):
    """The position of the largest element along an axis."""

    dtype: str = attribute("numpy's name of the result's type")


def _infer_pool(attrs: PoolAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    n, h, w, c = image_sizes(x)
    oh, ow = out_sizes((h, w), attrs.ksize, attrs.strides, ONE, attrs.padding)
    return TensorType(x.dtype, (n, oh, ow, c))


def _infer_max_pool(attrs: PoolAttrs, inputs: Sequence[TensorType]) -> TensorType:
    padding = () if isinstance(attrs.padding, str) else attrs.padding
    if any(max(pads) >= size for pads, size in zip(padding, attrs.ksize, strict=False)):
        raise GraphError(f"padding {padding} is not smaller than the window {attrs.ksize}")
    return _infer_pool(attrs, inputs)


def _pads(attrs: PoolAttrs, x: Array) -> Pads:
    return attrs.pads(x.shape[1:3])


def max_pool(attrs: PoolAttrs, inputs: Sequence[Array]) -> Array:
    """Largest value under each window; padding is never the largest."""
    x = inputs[0]
    return largest(x, attrs.ksize, attrs.strides, _pads(attrs, x))


def window_sum(x: Array, attrs: PoolAttrs) -> Array:
    views = (v for *_, v in taps(padded(x, _pads(attrs, x)), attrs.ksize, attrs.strides, ONE))
    total = next(views).copy()
    for view in views:
        np.add(total, view, out=total)
    return total


def window_count(height: int, width: int, attrs: PoolAttrs) -> Array:
    """How many real (not padded) positions each window covers: float64 [1, oh, ow, 1]."""
    return window_sum(np.ones((1, height, width, 1)), attrs)


def avg_pool(attrs: PoolAttrs, inputs: Sequence[Array]) -> Array:
    """Mean over each window; padded positions count neither in the sum nor in the number."""
    x = inputs[0]
    count = window_count(x.shape[1], x.shape[2], attrs)
    result: Array = window_sum(x, attrs) / count.astype(x.dtype)
    return result


def _infer_reduce(attrs: ReductionAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None:
        return TensorType(x.dtype, None)
    axes = {axis_of(a, len(x.shape)) for a in attrs.axes}
    if attrs.keepdims:
        return x.with_shape(tuple(1 if i in axes else d for i, d in enumerate(x.shape)))
    return x.with_shape(tuple(d for i, d in enumerate(x.shape) if i not in axes))


def _sum(attrs: ReductionAttrs, inputs: Sequence[Array]) -> Array:
    x = inputs[0]
    result: Array = np.sum(x, axis=attrs.axes, dtype=x.dtype, keepdims=attrs.keepdims)
    return result


def _reduce_max(attrs: ReductionAttrs, inputs: Sequence[Array]) -> Array:
    x, axes = inputs[0], attrs.axes
    result: Array = np.max(x, axis=axes, keepdims=attrs.keepdims, initial=lowest(x.dtype))
    return result


def _mean(attrs: ReductionAttrs, inputs: Sequence[Array]) -> Array:
    """The mean; NaN over no elements, without a warning of numpy."""
    x, axes, keepdims = inputs[0], attrs.axes, attrs.keepdims
    if x.size == 0:
        nothing: Array = np.sum(x, axis=axes, keepdims=keepdims) * x.dtype.type(np.nan)
        return nothing
    result: Array = np.mean(x, axis=axes, keepdims=keepdims)
    return result


def _infer_argmax(attrs: ArgmaxAttrs, inputs: Sequence[TensorType]) -> TensorType:
    shape = inputs[0].shape
    if shape is None:
        return TensorType(attrs.dtype, None)
    axis = axis_of(attrs.axis, len(shape))
    return TensorType(attrs.dtype, shape[:axis] + shape[axis + 1 :])


def _argmax(attrs: ArgmaxAttrs, inputs: Sequence[Array]) -> Array:
    if inputs[0].shape[attrs.axis] == 0:
        raise GraphError(f"argmax along axis {attrs.axis}, which has no elements")
    result: Array = inputs[0].argmax(axis=attrs.axis).astype(attrs.dtype)
    return result


def _first_stays(attrs: ReductionAttrs, shape: Shape) -> bool:
    return 0 not in {axis % len(shape) for axis in attrs.axes}


def _first_is_kept(attrs: ArgmaxAttrs, shape: Shape) -> bool:
    return attrs.axis % len(shape) != 0


def _largest(
    name: str,
    attributes: type[A],
    infer: Callable[[A, Sequence[TensorType]], TensorType],
    evaluate: Callable[[A, Sequence[Array]], Array],
    separate: Callable[[A, Shape], bool],
) -> AnyOp:
    return OpDef(
        name, (1, 1), attributes, infer, evaluate, moved(evaluate),
        scale=Scale.KEPT, reach=reach_of_inputs, nonnegative=as_its_inputs, moves=True,
        separate=separate,
    )  # fmt: skip


def _average(
    name: str, evaluate: Callable[[ReductionAttrs, Sequence[Array]], Array], takes: Elements
) -> OpDef[ReductionAttrs]:
    return OpDef(
        name, (1, 1), ReductionAttrs, _infer_reduce, evaluate,
        nonnegative=as_its_inputs, separate=_first_stays, takes=takes,
    )  # fmt: skip


OPS: tuple[AnyOp, ...] = (
    _largest("max_pool", PoolAttrs, _infer_max_pool, max_pool, always),
    _largest("reduce_max", ReductionAttrs, _infer_reduce, _reduce_max, _first_stays),
    OpDef(
        "avg_pool", (1, 1), PoolAttrs, _infer_pool, avg_pool,
        nonnegative=as_its_inputs, separate=always, takes=Elements.FLOATS,
    ),
    _average("mean", _mean, Elements.FLOATS),
    _average("sum", _sum, Elements.NUMBERS),
    OpDef("argmax", (1, 1), ArgmaxAttrs, _infer_argmax, _argmax, separate=_first_is_kept),
)  # fmt: skip
