"""Ops on each number of a value, or on two numbers at the same place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qgraph.errors import GraphError
from qgraph.ir.types import Array
from qgraph.ops.attributes import Attributes
from qgraph.rl.actor.ops.activations import ActivationAttrs
from qgraph.rl.actor.ops.arithmetic import clipped
from qgraph.rl.actor.ops.base import (
    ActorOp,
    AnyActorOp,
    ChannelRule,
    Shape,
    check_shape,
    same_channels,
)


def by_channel(attrs: Attributes, inputs: Sequence[Shape], weights: Sequence[Shape]) -> Shape:
    """The shape of x; each weight has one number for each channel of x."""
    (x,) = inputs
    for weight in weights:
        check_shape(x[-1:], weight, "a weight")
    return x


def same_shape(attrs: Attributes, inputs: Sequence[Shape], weights: Sequence[Shape]) -> Shape:
    return inputs[0]


def _pair(attrs: Attributes, inputs: Sequence[Shape], weights: Sequence[Shape]) -> Shape:
    a, b = inputs
    if b not in (a, (*a[:-1], 1)):
        raise GraphError(f"values of shapes {a} and {b} do not fit together")
    return a


def _binary(
    name: str, code: int, summary: str, function: Callable[[Array, Array], Array]
) -> ActorOp[Attributes]:
    return ActorOp(
        name,
        code,
        f"{summary}; the second has the shape of the first, or a last axis of 1",
        ("a", "b"),
        (),
        Attributes,
        ChannelRule.PAIRED,
        _pair,
        lambda attrs, inputs, weights: function(inputs[0], inputs[1]),
        same_channels,
    )


OPS: tuple[AnyActorOp, ...] = (
    ActorOp(
        "affine",
        2,
        "x * scale + offset, by channel",
        ("x",),
        ("scale", "offset"),
        Attributes,
        ChannelRule.SEPARATE,
        by_channel,
        lambda attrs, inputs, weights: inputs[0] * weights[0].values + weights[1].values,
        same_channels,
    ),
    ActorOp(
        "clip",
        3,
        "x within low and high, by channel",
        ("x",),
        ("low", "high"),
        Attributes,
        ChannelRule.SEPARATE,
        by_channel,
        lambda attrs, inputs, weights: clipped(inputs[0], *(w.values for w in weights)),
        same_channels,
    ),
    ActorOp(
        "activate",
        5,
        "an activation of each number",
        ("x",),
        (),
        ActivationAttrs,
        ChannelRule.SEPARATE,
        same_shape,
        lambda attrs, inputs, weights: attrs.applied(inputs[0]),
        same_channels,
    ),
    _binary("add", 9, "a sum", lambda a, b: a + b),
    _binary("multiply", 10, "a product, number by number", lambda a, b: a * b),
)
