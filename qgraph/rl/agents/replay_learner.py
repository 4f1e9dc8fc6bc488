"""The common part of learners from a replay.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping

import tensorflow as tf

from qgraph.foreign import Tensor, Variable
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram
from qgraph.rl.agents.bits_learner import BitsLearner
from qgraph.rl.agents.learner import Teacher
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.rl.agents.replay_config import ReplayConfig
from qgraph.rl.compress.chain_policy import PolicySpec
from qgraph.rl.head import Head
from qgraph.rl.learn.replay import Batch
from qgraph.rl.learn.tensors import Transitions, by_name, run, transitions_of

Weights = Mapping[str, Tensor]


class ReplayLearner(BitsLearner):
    """Base of learners whose step takes transitions from a replay.

    A subclass makes its networks, names the variables of a run in `parts` and defines `_step`.
    Networks run in float32 or mixed_bfloat16; a learner in other formats overrides `_run_float`.
    """

    program: ActorProgram
    head: Head
    policy: dict[str, Tensor]
    teacher = None

    def __init__(self, config: ReplayConfig) -> None:
        self.bfloat16 = config.precision is LearnerPrecision.MIXED_BFLOAT16
        self.taken = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._compile()

    @property
    @abstractmethod
    def parts(self) -> dict[str, Weights]:
        """The variables that a resumed run needs, by part and name."""

    @abstractmethod
    def _step(self, batch: Transitions) -> tuple[Tensor, ...]:
        """One step: the error [n] of each transition, and the loss. Runs as a TensorFlow graph.

        A learner that overrides `step` may return more.
        """

    @property
    def acting(self) -> Teacher:
        """The policy, as actors get it."""
        return Teacher(PolicySpec(self.program, self.head), self.policy)

    @property
    def state(self) -> dict[str, Variable]:
        """Every variable that a resumed run needs, as `part/name`."""
        return {**by_name(self.parts), **self.bits_state, "taken": self.taken}

    def step(self, batch: Batch) -> tuple[Array, float]:
        """Learn from a batch: the error [n] of each transition, for priorities, and the loss."""
        errors, loss = self._compiled(transitions_of(batch))
        return errors.numpy(), float(loss)

    def _count_step(self, period: int, update: Callable[[], None]) -> None:
        """Count a step, and call `update` in every `period`-th."""
        self.taken.assign_add(1)
        tf.cond(self.taken % period == 0, update, lambda: None)

    def _run(self, program: ActorProgram, weights: Weights, x: Tensor) -> Tensor:
        """The output [n, m] of a network for [n, *shape]; the policy's may be of few bits."""
        if self.bits is not None and program is self.bits.program:
            return self.bits(weights, x)
        return self._run_float(program, weights, x)

    def _compile(self) -> None:
        self._compiled = tf.function(self._step, autograph=False)

    def _run_float(self, program: ActorProgram, weights: Weights, x: Tensor) -> Tensor:
        return run(program, weights, x, bfloat16=self.bfloat16)
