"""The interface of learners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from qgraph.foreign import Tensor, Variable
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram
from qgraph.rl.compress.chain_policy import PolicySpec
from qgraph.rl.compress.settings import Settings
from qgraph.rl.head import Head
from qgraph.rl.learn.replay import Batch

if TYPE_CHECKING:
    from qgraph.rl.trained_bits.network import TrainedBits


@dataclass(frozen=True)
class Teacher:
    """A policy that students learn from, and its learner's values of states.

    weights     variables, by name
    """

    spec: PolicySpec
    weights: Mapping[str, Tensor]


class Learner(Protocol):
    """A network that learns from batches.

    program     the program of actors
    head        turns its outputs into actions
    policy      the variables of the program, by name
    state       every variable that a resumed run needs, by name
    bits        the network of the policy in few bits; None while it is float
    teacher     the policy with values V(x) on its torso; None for a learner without values
    acting      the policy as actors get it: the program above, or one that has more for drawing
    """

    program: ActorProgram
    policy: dict[str, Tensor]
    bits: TrainedBits | None

    @property
    def head(self) -> Head: ...

    @property
    def acting(self) -> Teacher: ...

    @property
    def teacher(self) -> Teacher | None: ...

    @property
    def state(self) -> dict[str, Variable]: ...

    def begin_bits(self, graph: Graph, rate: float) -> None:
        """Train the policy in few bits from now on, as in `BitsLearner`."""

    def step(self, batch: Batch) -> tuple[Array, float]:
        """Learn from a batch: the error of each transition, for priorities, and the loss."""


def teacher_of(learner: Learner, compression: Settings | None) -> Teacher:
    """The part of a learner that a compressor gets: values too, if a student learns them."""
    if compression is not None and compression.teaches_values and learner.teacher is not None:
        return learner.teacher
    return learner.acting
