"""Batch normalisation in inference form, whose statistics are inputs, and layer normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops.base import AnyOp, Elements, OpDef, always
from qgraph.ir.types import Array, TensorType
from qgraph.ops.attributes import Attributes, attribute


@dataclass(frozen=True, kw_only=True)
class NormAttrs(Attributes):
    """A normalisation."""

    epsilon: float = attribute("added to variances")


def _infer(attrs: NormAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape == ():
        raise GraphError(f"needs a tensor with channels, found {x}")
    channels = None if x.shape is None else x.shape[-1]
    for t in inputs[1:]:
        if t.shape is None or len(t.shape) != 1:
            raise GraphError(f"statistics must be vectors, found {t}")
        if None not in (channels, t.shape[0]) and t.shape[0] != channels:
            raise GraphError(f"statistics of {t} do not fit {x}")
    return x


def _batch_norm(attrs: NormAttrs, inputs: Sequence[Array]) -> Array:
    x, gamma, beta, mean, variance = inputs
    scale = gamma / np.sqrt(variance + x.dtype.type(attrs.epsilon))
    result: Array = (x - mean) * scale + beta
    return result


def _layer_norm(attrs: NormAttrs, inputs: Sequence[Array]) -> Array:
    """In float64, rounded once: sums over channels then do not depend on their order."""
    x, gamma, beta = (np.asarray(v, np.float64) for v in inputs)
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    normal = centred / np.sqrt(variance + attrs.epsilon)
    result: Array = (normal * gamma + beta).astype(inputs[0].dtype)
    return result


def _norm(name: str, inputs: int, evaluate: Callable[[NormAttrs, Sequence[Array]], Array]) -> AnyOp:
    arity = (inputs, inputs)
    return OpDef(name, arity, NormAttrs, _infer, evaluate, separate=always, takes=Elements.FLOATS)


OPS: tuple[AnyOp, ...] = (
    # x [..., c], gamma [c], beta [c]; mean and variance are those of x over its last axis
    _norm("layer_norm", 3, _layer_norm),
    # x [..., c], gamma [c], beta [c], mean [c], variance [c]
    _norm("batch_norm", 5, _batch_norm),
)
