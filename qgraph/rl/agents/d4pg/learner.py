"""D4PG (Barth-Maron et al., 2018): a deterministic policy, and a critic of distributions.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from qgraph.foreign import Tensor
from qgraph.ir.types import Array
from qgraph.rl.agents.d4pg.config import D4pgConfig
from qgraph.rl.agents.deterministic_learner import DeterministicLearner
from qgraph.rl.environments import Environment
from qgraph.rl.learn.tensors import Transitions

GRADIENT_NORM = 40.0


class D4pgLearner(DeterministicLearner):
    """The critic computes the logits [n, atoms] of a distribution over `values` [atoms]."""

    def __init__(self, config: D4pgConfig, environment: Environment) -> None:
        super().__init__(
            config,
            environment,
            outputs=config.atoms,
            layer_norm=config.layer_norm,
            gradient_norm=GRADIENT_NORM,
        )
        self.config = config
        self.values = np.linspace(-config.v_max, config.v_max, config.atoms).astype(np.float32)

    def _step(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        x, action, reward, discount, following, importance = batch
        chosen = self._act(self.target, following)
        ahead = tf.nn.softmax(self._criticize(self.critic_target, following, chosen))
        # The distribution of the next state, moved by reward and discount.
        moved = reward[:, None] + discount[:, None] * self.values
        wanted = tf.stop_gradient(project(moved, ahead, self.values))
        with tf.GradientTape() as tape:
            logits = self._criticize(self.critic, x, action)
            errors = tf.nn.softmax_cross_entropy_with_logits(wanted, logits)
            loss = tf.reduce_mean(importance * errors)
        self.critic_adam.descend(tape, loss)
        with tf.GradientTape() as tape:
            logits = self._criticize(self.critic, x, self._act(self.policy, x))
            value = tf.reduce_sum(tf.nn.softmax(logits) * self.values, -1)
            policy_loss = -tf.reduce_mean(value)
        self.policy_adam.descend(tape, policy_loss)
        self._count_step(self.config.target_update_period, lambda: self._update_targets(1.0))
        return errors, loss


def project(at: Tensor, weight: Tensor, values: Array) -> Tensor:
    """Project distributions [n, k] with `weight` at places `at` onto the fixed `values` [k].

    Each place's weight goes to its two neighbours, the nearer one more (Bellemare et al., 2017).
    """
    gap = values[1] - values[0]
    at = tf.clip_by_value(at, values[0], values[-1])
    near = tf.maximum(0.0, 1 - tf.abs(at[:, None, :] - values[None, :, None]) / gap)
    return tf.reduce_sum(near * weight[:, None, :], -1)
