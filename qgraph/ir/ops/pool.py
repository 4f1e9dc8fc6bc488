"""Pools and reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops.base import Attrs, Evaluate, OpDef, moved
from qgraph.ir.ops.sliding import largest, lowest
from qgraph.ir.ops.windows import explicit_pads, out_sizes, padded, taps
from qgraph.ir.types import Array, TensorType

ONE = (1, 1)


def _infer_pool(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None or len(x.shape) != 4:
        raise GraphError(f"needs an NHWC tensor of rank 4, found {x}")
    n, h, w, c = x.shape
    oh, ow = out_sizes((h, w), attrs["ksize"], attrs["strides"], ONE, attrs["padding"])
    return TensorType(x.dtype, (n, oh, ow, c))


def _infer_max_pool(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    padding = () if isinstance(attrs["padding"], str) else attrs["padding"]
    if any(max(pads) >= size for pads, size in zip(padding, attrs["ksize"], strict=False)):
        raise GraphError(f"padding {padding} reaches past a window of {attrs['ksize']}")
    return _infer_pool(attrs, inputs)


def _pads(attrs: Attrs, x: Any) -> Any:
    return explicit_pads(x.shape[1:3], attrs["ksize"], attrs["strides"], ONE, attrs["padding"])


def max_pool(attrs: Attrs, inputs: Sequence[Array]) -> Array:
    """Largest value under each window; padding never wins."""
    x = inputs[0]
    return largest(x, attrs["ksize"], attrs["strides"], _pads(attrs, x))


def window_sum(x: Any, attrs: Attrs) -> Any:
    result: Any = None
    for _, _, view in taps(padded(x, _pads(attrs, x)), attrs["ksize"], attrs["strides"], ONE):
        result = view.copy() if result is None else np.add(result, view, out=result)
    return result


def window_count(height: int, width: int, attrs: Attrs) -> Any:
    """How many real (not padded) positions each window covers: float64 [1, oh, ow, 1]."""
    return window_sum(np.ones((1, height, width, 1)), attrs)


def avg_pool(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    """Mean over each window; padded positions count neither above nor below the line."""
    x = inputs[0]
    count = window_count(x.shape[1], x.shape[2], attrs)
    return window_sum(x, attrs) / count.astype(x.dtype)


def _infer_reduce(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None:
        return TensorType(x.dtype, None)
    axes = {a % len(x.shape) for a in attrs["axes"]} if x.shape else set()
    if attrs["keepdims"]:
        return x.with_shape(tuple(1 if i in axes else d for i, d in enumerate(x.shape)))
    return x.with_shape(tuple(d for i, d in enumerate(x.shape) if i not in axes))


def _reduce(function: Callable[..., Any]) -> Evaluate:
    def evaluate(attrs: Attrs, inputs: Sequence[Any]) -> Any:
        return function(inputs[0], axis=tuple(attrs["axes"]), keepdims=attrs["keepdims"])

    return evaluate


def _reduce_max(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    x, axes = inputs[0], tuple(attrs["axes"])
    return np.max(x, axis=axes, keepdims=attrs["keepdims"], initial=lowest(x.dtype))


def _mean(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    """NaN over nothing, and numpy does not warn."""
    x, axes, keepdims = inputs[0], tuple(attrs["axes"]), attrs["keepdims"]
    if x.size == 0:
        return np.sum(x, axis=axes, keepdims=keepdims) * x.dtype.type(np.nan)
    return np.mean(x, axis=axes, keepdims=keepdims)


def _infer_argmax(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    shape = inputs[0].shape
    if shape is None:
        return TensorType(attrs["dtype"], None)
    axis = attrs["axis"] % len(shape)
    return TensorType(attrs["dtype"], shape[:axis] + shape[axis + 1 :])


def _argmax(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    if inputs[0].shape[attrs["axis"]] == 0:
        raise GraphError(f"argmax along axis {attrs['axis']}, which has no elements")
    return inputs[0].argmax(axis=attrs["axis"]).astype(attrs["dtype"])


POOL = ("ksize", "strides", "padding")
REDUCE = ("axes", "keepdims")

OPS = (
    OpDef("max_pool", (1, 1), _infer_max_pool, max_pool, moved(max_pool), POOL, moves=True),
    OpDef("avg_pool", (1, 1), _infer_pool, avg_pool, attrs=POOL),
    OpDef("mean", (1, 1), _infer_reduce, _mean, attrs=REDUCE),
    OpDef("sum", (1, 1), _infer_reduce, _reduce(np.sum), attrs=REDUCE),
    OpDef(
        "reduce_max",
        (1, 1),
        _infer_reduce,
        _reduce_max,
        moved(_reduce_max),
        REDUCE,
        moves=True,
    ),
    OpDef("argmax", (1, 1), _infer_argmax, _argmax, attrs=("axis", "dtype")),
)
