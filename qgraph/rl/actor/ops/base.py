"""The definition of an op of actor programs, from which everything else is derived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from qgraph.errors import GraphError
from qgraph.ir.types import Array
from qgraph.ops.attributes import Attributes

Shape = tuple[int, ...]  # of one sample
A = TypeVar("A", bound=Attributes)


class ChannelRule(Enum):
    """How channels of the result, its last axis, come from those of the operands."""

    LAYER = "each is a sum over all channels"
    NORMED = "each is one channel, on a scale that depends on all of them"
    SEPARATE = "each is computed from the same channel alone"
    MIXED = "each is one channel, changed by a value of all channels"
    PAIRED = "each is computed from the same channel of two operands"
    MOVED = "each is one channel of one operand, at another place"
    PLACED = "each is found by its place in the operands, so none can be left out"


@dataclass(frozen=True)
class StepWeight:
    """A weight of a step, as the reference computes with it.

    values: a kernel is [segments, length, m], another weight a vector. Integer codes are float64,
    which holds them and the sums of their products exactly; other values are float32. scale: [m],
    of a kernel with integer codes.
    """

    values: Array
    scale: Array | None = None


@dataclass(frozen=True)
class ActorOp(Generic[A]):
    """One op. Values have no batch axis; images are [height, width, channels].

    code: its number in blocks, which never changes. operands: the names of its inputs; a last name
    that ends in `...` stands for one or more. weights: the roles of its weights.

    shape: the shape of the result, from those of the inputs and of the weights. Raises GraphError
    if they do not fit. compute: the reference, bit for bit, on float32 with a batch axis in front.
    channel_ids: the ids of the result's channels, from those of the inputs' channels; None for
    layers, whose channels are new, and for PLACED ops, whose channels cannot be told apart.
    """

    name: str
    code: int
    summary: str
    operands: tuple[str, ...]
    weights: tuple[str, ...]
    attributes: type[A]
    channels: ChannelRule
    shape: Callable[[A, Sequence[Shape], Sequence[Shape]], Shape]
    compute: Callable[[A, Sequence[Array], Sequence[StepWeight]], Array]
    channel_ids: Callable[[Sequence[Array], Sequence[Shape]], Array] | None = None

    @property
    def layer(self) -> bool:
        """Whether its first weight is a kernel."""
        return self.channels is ChannelRule.LAYER

    @property
    def variadic(self) -> bool:
        return self.operands[-1].endswith("...")

    def check_counts(self, inputs: int, weights: int) -> None:
        """Raise GraphError for a wrong number of inputs or weights."""
        too_few = inputs < len(self.operands)
        if too_few or (inputs > len(self.operands) and not self.variadic):
            raise GraphError(f"{inputs} inputs are given", hint=f"it takes {_words(self.operands)}")
        if weights != len(self.weights):
            raise GraphError(f"{weights} weights are given", hint=f"it has {_words(self.weights)}")


AnyActorOp: TypeAlias = ActorOp[Any]  # of whatever attributes: one of the table of all ops


def _words(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def check_shape(shape: Shape, found: Shape, what: str) -> None:
    """Raise GraphError if the shapes differ."""
    if shape != found:
        raise GraphError(f"{what} has shape {found}, not {shape}")


def check_rank(x: Shape, count: int) -> None:
    """Raise GraphError if a value has another number of axes."""
    if len(x) != count:
        raise GraphError(f"needs a value of rank {count}, found {x}")


def same_channels(inputs: Sequence[Array], shapes: Sequence[Shape]) -> Array:
    return inputs[0]
