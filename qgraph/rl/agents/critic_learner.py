"""The common part of learners with critics of pairs of observation and action.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from qgraph.foreign import Tensor
from qgraph.ir.types import Array
from qgraph.rl.actor.program import ActorProgram
from qgraph.rl.agents.replay_learner import ReplayLearner, Weights
from qgraph.rl.learn.networks import TINY, initial_weights
from qgraph.rl.learn.tensors import by_name
from qgraph.stored import part

CRITIC_NAMES = ("one", "two")


class CriticLearner(ReplayLearner):
    """Base of learners with one or two critics, which evaluate pairs of observation and action.

    critic_program  the program of each critic
    """

    critic_program: ActorProgram

    def _two_critics(self, rng: np.random.Generator) -> Mapping[str, Array]:
        """The first weights of two critics, as `one/name` and `two/name`."""
        return by_name(
            {name: initial_weights(self.critic_program, rng, TINY) for name in CRITIC_NAMES}
        )

    def _criticize(self, weights: Weights, x: Tensor, action: Tensor) -> Tensor:
        """The outputs [n, outputs] of a critic for pairs."""
        return self._run(self.critic_program, weights, tf.concat([x, action], -1))

    def pair_values(self, critics: Weights, x: Tensor, action: Tensor) -> list[Tensor]:
        """The value [n] of each pair by each of two critics."""
        return [self._criticize(part(critics, name), x, action)[:, 0] for name in CRITIC_NAMES]
