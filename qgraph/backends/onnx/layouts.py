"""Layouts of images: NHWC in programs and graphs, NCHW in ONNX ops."""

from __future__ import annotations

from qgraph.ir.types import Array
from qgraph.ops.movement import TO_NCHW


def turned(array: Array) -> Array:
    """A constant in a shape that broadcasts over NCHW tensors."""
    return array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(TO_NCHW)


def axis_in(axis: int, nchw: bool) -> int:
    """The index of an NHWC axis in a layout."""
    return TO_NCHW.index(axis) if nchw else axis
