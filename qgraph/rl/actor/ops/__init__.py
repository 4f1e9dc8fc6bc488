"""The ops of actor programs, by name: one definition each (base.py says what it has).

To add one, write an `ActorOp` in the file of its kind. What has to follow fails by name in
tests/rl/actor/test_ops.py, and in the compiler, until it is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from qgraph.errors import GraphError
from qgraph.rl.actor.ops import layers, pointwise, rows
from qgraph.rl.actor.ops.activations import ACTIVATIONS, ALPHA, Activation, ActivationAttrs
from qgraph.rl.actor.ops.base import ActorOp, ChannelRule, Shape
from qgraph.rl.actor.ops.layers import ActorConvAttrs
from qgraph.rl.actor.ops.rows import LayerNormAttrs

__all__ = [
    "ACTIVATIONS",
    "ALPHA",
    "LAYERS",
    "OPS",
    "Activation",
    "ActivationAttrs",
    "ActorConvAttrs",
    "ActorOp",
    "ChannelRule",
    "LayerNormAttrs",
    "Shape",
    "actor_op",
]


def _by_code() -> Mapping[str, ActorOp[Any]]:
    every = (*layers.OPS, *pointwise.OPS, *rows.OPS)
    return MappingProxyType({op.name: op for op in sorted(every, key=lambda op: op.code)})


# In the order of their codes in blocks.
OPS: Mapping[str, ActorOp[Any]] = _by_code()
LAYERS = tuple(op.name for op in OPS.values() if op.layer)


def actor_op(name: str) -> ActorOp[Any]:
    """The definition of an op. Raises GraphError for an unknown name."""
    if name not in OPS:
        raise GraphError(f"no actor has an op `{name}`", hint=f"ops of actors: {', '.join(OPS)}")
    return OPS[name]
