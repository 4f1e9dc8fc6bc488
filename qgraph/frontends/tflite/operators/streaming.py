"""Layers that keep the last frames of their input from run to run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError, UnsupportedError
from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.operators.translator import Translator
from qgraph.frontends.tflite.translation import ACTIVATION_OPTION, Translation
from qgraph.ir.types import Array

FEATURES, TIME, BIAS, STATE = 1, 2, 3, 4  # inputs of SVDF after x


def _svdf(t: Translation) -> Ref:
    """Features of a frame, and for each unit a filter over the last frames of its features.

    Weights of features are [filters, in], those over time [filters, memory]; `Rank` filters belong
    to one unit. The state is the features of the last frames but one, [batch, memory - 1, filters].
    """
    features, over_time = _weights(t, FEATURES), _weights(t, TIME)
    rank, (filters, memory) = t.option("Rank"), over_time.shape
    if rank < 1 or filters % rank or features.shape[0] != filters or t.rank(0) != 2:
        raise GraphError(
            f"`SVDF` of rank {rank} with weights {list(features.shape)} and "
            f"{list(over_time.shape)}",
            node=t.name,
        )
    made = t.emit("MatMul", t.input(0), t.weights(features.T, FEATURES))
    frames = t.emit("ExpandDims", t.quantized(t, made, t.tensor(STATE)), t.integers(1, "axis"))
    if memory > 1:
        state = t.state(f"{t.name}/state", (t.tensor(0).dims[0], memory - 1, filters))
        held = t.quantized(t, state, t.tensor(STATE))
        frames = t.emit("ConcatV2", held, frames, t.integers(1, "axis"))
        place, size = t.integers((0, 1, 0), "begin"), t.integers((-1, memory - 1, -1), "size")
        t.states[state[0]] = t.emit("Slice", frames, place, size)
    image = t.emit("ExpandDims", frames, t.integers(2, "axis"))
    window = {"strides": (1, 1, 1, 1), "padding": "VALID"}
    if rank == 1:
        kernel = t.weights(over_time.T.reshape(memory, 1, filters, 1), TIME)
        sums = t.emit("DepthwiseConv2dNative", image, kernel, **window)
    else:
        grouped = over_time.T.reshape(memory, 1, filters // rank, rank).transpose(0, 1, 3, 2)
        sums = t.emit("Conv2D", image, t.weights(grouped, TIME), **window)
    if t.has(BIAS):
        sums = t.emit("BiasAdd", sums, t.input(BIAS))
    sums = t.emit("Reshape", sums, t.integers((-1, filters // rank), "shape"))
    if t.output().scale is not None:  # kernels of codes only saturate, whatever the activation
        t.optional(ACTIVATION_OPTION)
        return sums
    return t.activated(sums)


def _weights(t: Translation, i: int) -> Array:
    known = t.constant(i)
    if known is None:
        raise UnsupportedError("`SVDF` with computed weights", node=t.name)
    if known.ndim != 2:
        raise GraphError(f"weights of rank {known.ndim}", node=t.name)
    return np.ascontiguousarray(known)


OPERATORS: Mapping[str, Translator] = MappingProxyType({"SVDF": _svdf})
