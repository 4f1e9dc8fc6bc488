"""D4PG (Barth-Maron et al., 2018): a deterministic policy, and a critic of distributions.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from qgraph.ir.types import Array
from qgraph.rl.agents.d4pg.config import D4pgConfig
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.rl.environments import Environment
from qgraph.rl.head import Head
from qgraph.rl.learn.adam import Adam
from qgraph.rl.learn.networks import TINY, initial_weights, network
from qgraph.rl.learn.replay import Batch
from qgraph.rl.learn.tensors import by_name, copies, of_batch, run, variables

Tensor = Any
NORM = 40.0  # gradients of a network are scaled down above it


class D4pgLearner:
    """Actions are -1..1 everywhere but in the environment, for which the head stretches them."""

    teacher = None

    def __init__(self, config: D4pgConfig, environment: Environment) -> None:
        self.config = config
        self.bfloat16 = config.precision is LearnerPrecision.MIXED_BFLOAT16
        actions = environment.actions
        self.head = Head("scale", actions.low, actions.high)
        shape, width = environment.shape, len(actions.low)
        norm = config.layer_norm
        self.program = network(shape, config.hidden_sizes, width, last="tanh", layer_norm=norm)
        judged = (shape[0] + width,)
        self.judge = network(judged, config.critic_hidden_sizes, config.atoms, layer_norm=norm)
        rng = np.random.default_rng(config.seed)
        policy = initial_weights(self.program, rng, TINY)
        critic = initial_weights(self.judge, rng, TINY)
        self.policy, self.target = variables(policy, "policy"), variables(policy, "target")
        self.critic, self.critic_target = variables(critic, "critic"), variables(critic, "aim")
        self.policy_adam = Adam(self.policy, config.learning_rate, NORM)
        self.critic_adam = Adam(self.critic, config.learning_rate, NORM)
        self.taken = tf.Variable(0, dtype=tf.int64, trainable=False)
        limit = config.v_max
        self.values = np.linspace(-limit, limit, config.atoms).astype(np.float32)
        self._compiled = tf.function(self._step)

    @property
    def state(self) -> dict[str, Any]:
        """Every variable that a run goes on from, by name."""
        parts = {
            "policy": self.policy,
            "target": self.target,
            "critic": self.critic,
            "critic_target": self.critic_target,
            "policy_adam": self.policy_adam.state,
            "critic_adam": self.critic_adam.state,
        }
        return {**by_name(parts), "taken": self.taken}

    def step(self, batch: Batch) -> tuple[Array, float]:
        """One step of both networks: the critic's loss of each transition, and its mean."""
        errors, loss = self._compiled(*of_batch(batch))
        return errors.numpy(), float(loss)

    def _step(
        self, x: Tensor, action: Tensor, reward: Tensor, discount: Tensor, following: Tensor,
        importance: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        chosen = self._act(self.target, following)
        ahead = tf.nn.softmax(self._judged(self.critic_target, following, chosen))
        # What the target says of the next state, moved by reward and discount.
        moved = reward[:, None] + discount[:, None] * self.values
        wanted = tf.stop_gradient(project(moved, ahead, self.values))
        with tf.GradientTape() as tape:
            logits = self._judged(self.critic, x, action)
            errors = tf.nn.softmax_cross_entropy_with_logits(wanted, logits)
            loss = tf.reduce_mean(importance * errors)
        self.critic_adam.descend(tape, loss)
        with tf.GradientTape() as tape:
            logits = self._judged(self.critic, x, self._act(self.policy, x))
            value = tf.reduce_sum(tf.nn.softmax(logits) * self.values, -1)
            policy_loss = -tf.reduce_mean(value)
        self.policy_adam.descend(tape, policy_loss)
        self.taken.assign_add(1)
        if self.taken % self.config.target_update_period == 0:
            copies([(self.policy[name], self.target[name]) for name in self.policy])
            copies([(self.critic[name], self.critic_target[name]) for name in self.critic])
        return errors, loss

    def _act(self, weights: dict[str, Any], x: Tensor) -> Tensor:
        return run(self.program, weights, x, bfloat16=self.bfloat16)

    def _judged(self, weights: dict[str, Any], x: Tensor, action: Tensor) -> Tensor:
        return run(self.judge, weights, tf.concat([x, action], -1), bfloat16=self.bfloat16)


def project(at: Tensor, weight: Tensor, values: Array) -> Tensor:
    """Distributions [n, k] with `weight` at places `at`, put onto the fixed `values` [k].

    Each place's weight goes to its two neighbours, the nearer one more (Bellemare et al., 2017).
    """
    gap = values[1] - values[0]
    at = tf.clip_by_value(at, values[0], values[-1])
    near = tf.maximum(0.0, 1 - tf.abs(at[:, None, :] - values[None, :, None]) / gap)
    return tf.reduce_sum(near * weight[:, None, :], -1)
