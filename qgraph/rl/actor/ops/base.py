"""What defines one op of actor programs; everything that asks about ops is derived from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from qgraph.errors import GraphError
from qgraph.ir.types import Array
from qgraph.ops.attributes import Attributes, declarations

Shape = tuple[int, ...]  # of one sample
A = TypeVar("A", bound=Attributes)


class ChannelRule(Enum):
    """How channels of the result, its last axis, come from those of the operands."""

    LAYER = "each is a sum over all channels"
    NORMED = "each is one channel, on a scale that follows from all of them"
    APART = "each is computed from the same channel, and from nothing else"
    MIXED = "each is one channel, changed by what all channels have"
    MEET = "each is made of the same channel of two operands"
    MOVED = "each is one channel of one operand, at another place"


@dataclass(frozen=True)
class ActorOp(Generic[A]):
    """One op. Values have no batch axis; images are [height, width, channels].

    code: its number in blocks, which never changes. operands: what each input is called; the last
    one stands for any number of inputs where it ends in `...`. weights: the roles of its weights.

    shape: of the result, from those of the inputs and of the weights. Raises GraphError where they
    do not fit. compute: the reference, bit for bit, on float32 with a batch axis in front; a kernel
    is given as `Codes`, other weights as vectors. numbered: for numbers of the channels of each
    input, those of the result's; None for layers, which make new ones.
    """

    name: str
    code: int
    summary: str
    operands: tuple[str, ...]
    weights: tuple[str, ...]
    attributes: type[A]
    channels: ChannelRule
    shape: Callable[[A, Sequence[Shape], Sequence[Shape]], Shape]
    compute: Callable[[A, Sequence[Array], Sequence[Any]], Array]
    numbered: Callable[[Sequence[Array], Sequence[Shape]], Array] | None = None

    @property
    def layer(self) -> bool:
        """Whether it has a kernel, its first weight."""
        return self.channels is ChannelRule.LAYER

    @property
    def activates(self) -> bool:
        """Whether steps of it may have an activation."""
        return any(declared.name == "activation" for declared in declarations(self.attributes))

    @property
    def variadic(self) -> bool:
        return self.operands[-1].endswith("...")

    def check_counts(self, inputs: int, weights: int) -> None:
        """Raises GraphError for a number of inputs or weights that no step of it has."""
        few = inputs < len(self.operands)
        if few or (inputs > len(self.operands) and not self.variadic):
            raise GraphError(f"{inputs} inputs are given", hint=f"it takes {_words(self.operands)}")
        if weights != len(self.weights):
            raise GraphError(f"{weights} weights are given", hint=f"it has {_words(self.weights)}")


def _words(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def wanted(shape: Shape, found: Shape, what: str) -> None:
    """Raises GraphError where shapes differ."""
    if shape != found:
        raise GraphError(f"{what} has shape {found}, not {shape}")


def rank(x: Shape, count: int) -> None:
    """Raises GraphError where a value has another number of axes."""
    if len(x) != count:
        raise GraphError(f"needs a value of rank {count}, found {x}")


def same_channels(inputs: Sequence[Array], shapes: Sequence[Shape]) -> Array:
    return inputs[0]
