"""The ops of actor programs, by name: one definition each (base.py).

To add one, write an `ActorOp` in the file of its kind. tests/rl/actor/test_ops.py and the compiler
then name each place that lacks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.errors import GraphError
from qgraph.rl.actor.ops import arrangement, layers, pointwise, rows
from qgraph.rl.actor.ops.activations import ACTIVATIONS, ALPHA, Activation, ActivationAttrs
from qgraph.rl.actor.ops.arrangement import ColumnsAttrs, ShapeAttrs
from qgraph.rl.actor.ops.base import ActorOp, AnyActorOp, ChannelRule, Shape, StepWeight
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
    "AnyActorOp",
    "ChannelRule",
    "ColumnsAttrs",
    "LayerNormAttrs",
    "Shape",
    "ShapeAttrs",
    "StepWeight",
    "actor_op",
]


def _by_code() -> Mapping[str, AnyActorOp]:
    every = (*layers.OPS, *pointwise.OPS, *rows.OPS, *arrangement.OPS)
    return MappingProxyType({op.name: op for op in sorted(every, key=lambda op: op.code)})


# In the order of their codes in blocks.
OPS: Mapping[str, AnyActorOp] = _by_code()
LAYERS = tuple(op.name for op in OPS.values() if op.layer)


def actor_op(name: str) -> AnyActorOp:
    """The definition of an op. Raises GraphError for an unknown name."""
    if name not in OPS:
        raise GraphError(f"actors have no op `{name}`", hint=f"ops of actors: {', '.join(OPS)}")
    return OPS[name]
