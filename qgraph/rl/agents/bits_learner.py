"""The part of learners that trains their policy in few bits.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from qgraph.foreign import Tensor, Variable
from qgraph.ir.graph import Graph
from qgraph.rl.actor import ActorProgram
from qgraph.rl.learn.adam import Adam
from qgraph.rl.learn.tensors import by_name
from qgraph.rl.trained_bits.network import TrainedBits


class BitsLearner(ABC):
    """Base of learners whose policy becomes a network of few bits during a run.

    program  the program of actors, and the network that is trained in few bits
    policy   its variables by name
    bits     the network of few bits; None while the policy is float
    """

    program: ActorProgram
    policy: dict[str, Tensor]
    bits: TrainedBits | None = None

    def begin_bits(self, graph: Graph, rate: float) -> None:
        """Train the policy in few bits from now on.

        graph: a calibrated graph of `program`. rate: learning rate of thresholds.
        """
        self.bits = TrainedBits(self.program, graph, rate)
        self._train_beside(self.bits.thresholds)
        self._compile()

    @property
    def bits_state(self) -> dict[str, Variable]:
        """The variables of the network of few bits, by name."""
        return {} if self.bits is None else by_name({"bits": self.bits.state})

    @abstractmethod
    def _train_beside(self, thresholds: Adam) -> None:
        """Let the optimizer of the policy step `thresholds` too."""

    @abstractmethod
    def _compile(self) -> None:
        """Trace the step of the learner again."""
