"""Convolutions and matrix products, with their biases."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError, UnsupportedError
from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.operators.translator import Translator
from qgraph.frontends.tflite.translation import Translation
from qgraph.ir.types import Array


def _window(t: Translation) -> dict[str, object]:
    return {"strides": (1, t.option("StrideH"), t.option("StrideW"), 1), "padding": t.padding()}


def _dilations(t: Translation) -> dict[str, object]:
    return {"dilations": (1, t.option("DilationHFactor"), t.option("DilationWFactor"), 1)}


def _biased(t: Translation, value: Ref, i: int) -> Ref:
    """`value` with the bias of input `i`, if there is one, and the fused activation."""
    return t.activated(t.emit("BiasAdd", value, t.input(i)) if t.has(i) else value)


def _weights(t: Translation, i: int, perm: tuple[int, ...]) -> Ref:
    """The weights of input `i` with their axes in the order of TensorFlow."""
    known = t.constant(i)
    if known is None:
        return t.emit("Transpose", t.input(i), t.integers(perm, "perm"))
    if known.ndim != len(perm):
        raise GraphError(f"weights of rank {known.ndim}", node=t.name)
    return t.weights(np.transpose(known, perm), i)


def _conv(t: Translation) -> Ref:
    weights = _weights(t, 1, (1, 2, 3, 0))
    return _biased(t, t.emit("Conv2D", t.input(0), weights, **_window(t), **_dilations(t)), 2)


def _window_of_volume(t: Translation) -> dict[str, object]:
    steps = tuple(t.option(f"Stride{axis}") for axis in "DHW")
    dilations = tuple(t.option(f"Dilation{axis}Factor") for axis in "DHW")
    return {"strides": (1, *steps, 1), "dilations": (1, *dilations, 1), "padding": t.padding()}


def _conv_of_volume(t: Translation) -> Ref:
    """Filters [depth, height, width, in, out], as in TensorFlow."""
    return _biased(t, t.emit("Conv3D", t.input(0), t.input(1), **_window_of_volume(t)), 2)


def _transposed_conv_of_volume(t: Translation) -> Ref:
    """Inputs: output shape, filters [depth, height, width, out, in], volume."""
    inputs = (t.input(i) for i in range(3))
    return _biased(t, t.emit("Conv3DBackpropInputV2", *inputs, **_window_of_volume(t)), 3)


def _depthwise(t: Translation) -> Ref:
    """Filters [1, h, w, channels * multiplier]."""
    known, shape = t.constant(1), t.tensor(0).shape
    t.optional("DepthMultiplier")  # follows from the shapes
    if known is None:
        raise UnsupportedError("depthwise filters that are not constant", node=t.name)
    channels = shape[-1] if len(shape) == 4 else 0
    if known.ndim != 4 or channels < 1 or known.shape[3] % channels:
        raise GraphError(f"filters {list(known.shape)} for {list(shape)}", node=t.name)
    filters: Array = known.reshape(*known.shape[1:3], channels, known.shape[3] // channels)
    attrs = {**_window(t), **_dilations(t)}
    made = t.emit("DepthwiseConv2dNative", t.input(0), t.weights(filters, 1), **attrs)
    return _biased(t, made, 2)


def _transposed_conv(t: Translation) -> Ref:
    """Inputs: output shape, filters [out, h, w, in], image."""
    weights = _weights(t, 1, (1, 2, 0, 3))
    made = t.emit("Conv2DBackpropInput", t.input(0), weights, t.input(2), **_window(t))
    return _biased(t, made, 3)


def _fully_connected(t: Translation) -> Ref:
    """Weights [out, in]; the input as rows of `in` numbers."""
    if t.optional("WeightsFormat"):
        raise UnsupportedError("weights in shuffled order", node=t.name)
    inner = t.tensor(1).shape[-1]
    x, w = t.input(0), _weights(t, 1, (1, 0))
    if t.optional("KeepNumDims") and t.rank(0) > 2:
        return _biased(t, t.emit("BatchMatMulV2", x, w), 2)
    if t.rank(0) != 2 or t.tensor(0).shape[-1] != inner:
        x = t.emit("Reshape", x, t.integers((-1, inner), "rows"))
    return _biased(t, t.emit("MatMul", x, w), 2)


def _batch_matmul(t: Translation) -> Ref:
    attrs = {"adj_x": bool(t.optional("AdjX")), "adj_y": bool(t.optional("AdjY"))}
    return t.emit("BatchMatMulV2", t.input(0), t.input(1), **attrs)


OPERATORS: Mapping[str, Translator] = MappingProxyType(
    {
        "CONV_2D": _conv,
        "CONV_3D": _conv_of_volume,
        "CONV_3D_TRANSPOSE": _transposed_conv_of_volume,
        "DEPTHWISE_CONV_2D": _depthwise,
        "TRANSPOSE_CONV": _transposed_conv,
        "FULLY_CONNECTED": _fully_connected,
        "BATCH_MATMUL": _batch_matmul,
    }
)
