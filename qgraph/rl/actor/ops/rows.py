"""Ops on all channels at once, and ops that move channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.ir.types import Array
from qgraph.ops.attributes import Attributes, attribute
from qgraph.ops.shapes import concatenated
from qgraph.ops.windows import MaxPoolAttrs, slid
from qgraph.rl.actor.ops.arithmetic import F, exp, mean, total
from qgraph.rl.actor.ops.base import (
    ActorOp,
    AnyActorOp,
    ChannelRule,
    Shape,
    StepWeight,
    check_rank,
    same_channels,
)
from qgraph.rl.actor.ops.layers import windows
from qgraph.rl.actor.ops.pointwise import by_channel, same_shape


@dataclass(frozen=True)
class LayerNormAttrs(Attributes):
    """A layer norm."""

    epsilon: float = attribute("added to the variance", low=0.0)


# -- shapes -------------------------------------------------------------------------------------


def _pool_shape(attrs: MaxPoolAttrs, inputs: Sequence[Shape], weights: Sequence[Shape]) -> Shape:
    (x,) = inputs
    check_rank(x, 3)
    return (*slid(x, attrs.ksize, attrs.strides, attrs.pads), x[2])


def _concat_shape(attrs: Attributes, inputs: Sequence[Shape], weights: Sequence[Shape]) -> Shape:
    return concatenated(inputs, len(inputs[0]) - 1)


def _flatten_shape(attrs: Attributes, inputs: Sequence[Shape], weights: Sequence[Shape]) -> Shape:
    return (math.prod(inputs[0]),)


# -- arithmetic ---------------------------------------------------------------------------------


def _layer_norm(
    attrs: LayerNormAttrs, inputs: Sequence[Array], weights: Sequence[StepWeight]
) -> Array:
    centered = inputs[0] - mean(inputs[0])
    scale = F(1) / np.sqrt(mean(centered * centered) + F(attrs.epsilon))
    return np.asarray((centered * scale) * weights[0].values + weights[1].values)


def _center(attrs: Attributes, inputs: Sequence[Array], weights: Sequence[StepWeight]) -> Array:
    return inputs[0] - mean(inputs[0])


def _softmax(attrs: Attributes, inputs: Sequence[Array], weights: Sequence[StepWeight]) -> Array:
    y = exp(inputs[0] - np.fmax.reduce(inputs[0], -1, keepdims=True))
    return y / total(y)


def _max_pool(attrs: MaxPoolAttrs, inputs: Sequence[Array], weights: Sequence[StepWeight]) -> Array:
    found = windows(inputs[0], attrs.ksize, attrs.strides, attrs.pads, F(-np.inf))
    found = found.reshape(*found.shape[:4], -1)
    return np.asarray(np.fmax.reduce(found, -1, initial=F(-np.inf)))


def _avg_pool(attrs: MaxPoolAttrs, inputs: Sequence[Array], weights: Sequence[StepWeight]) -> Array:
    (x,) = inputs
    inside = np.ones((1, *x.shape[1:3], 1), F)
    sums, counts = (_sums(attrs, values) for values in (x, inside))
    return np.asarray(sums / counts)


def _sums(attrs: MaxPoolAttrs, x: Array) -> Array:
    """Numbers under each window are added in the order of rows."""
    found = windows(x, attrs.ksize, attrs.strides, attrs.pads, F(0))
    taps = found.reshape(*found.shape[:4], -1)
    y = np.zeros(taps.shape[:-1], F)
    for tap in range(taps.shape[-1]):
        y += taps[..., tap]
    return y


def _concat(attrs: Attributes, inputs: Sequence[Array], weights: Sequence[StepWeight]) -> Array:
    return np.concatenate(inputs, -1)


def _flatten(attrs: Attributes, inputs: Sequence[Array], weights: Sequence[StepWeight]) -> Array:
    return inputs[0].reshape(len(inputs[0]), -1)


OPS: tuple[AnyActorOp, ...] = (
    ActorOp(
        "layer_norm",
        4,
        "(x - mean) / sqrt(variance + epsilon) * gamma + beta, along the last axis",
        ("x",),
        ("gamma", "beta"),
        LayerNormAttrs,
        ChannelRule.NORMED,
        by_channel,
        _layer_norm,
        same_channels,
    ),
    ActorOp(
        "center",
        6,
        "x less the mean of x, along the last axis",
        ("x",),
        (),
        Attributes,
        ChannelRule.MIXED,
        same_shape,
        _center,
        same_channels,
    ),
    ActorOp(
        "softmax",
        7,
        "exp(x) over the sum of exp(x), along the last axis",
        ("x",),
        (),
        Attributes,
        ChannelRule.MIXED,
        same_shape,
        _softmax,
        same_channels,
    ),
    ActorOp(
        "max_pool",
        8,
        "the largest number under a window, by channel",
        ("x",),
        (),
        MaxPoolAttrs,
        ChannelRule.MOVED,
        _pool_shape,
        _max_pool,
        same_channels,
    ),
    ActorOp(
        "avg_pool",
        18,
        "the mean of the numbers under a window, by channel; padding does not count",
        ("x",),
        (),
        MaxPoolAttrs,
        ChannelRule.MOVED,
        _pool_shape,
        _avg_pool,
        same_channels,
    ),
    ActorOp(
        "concat",
        11,
        "values one after the other, along the last axis",
        ("x...",),
        (),
        Attributes,
        ChannelRule.MOVED,
        _concat_shape,
        _concat,
        lambda inputs, shapes: np.concatenate(inputs),
    ),
    ActorOp(
        "flatten",
        12,
        "all numbers along one axis, rows first",
        ("x",),
        (),
        Attributes,
        ChannelRule.MOVED,
        _flatten_shape,
        _flatten,
        lambda inputs, shapes: np.tile(inputs[0], math.prod(shapes[0][:-1])),
    ),
)
