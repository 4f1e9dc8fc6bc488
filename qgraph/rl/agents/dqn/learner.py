"""DQN (Mnih et al., 2015): double, dueling and prioritised as options.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from qgraph.ir.types import Array
from qgraph.rl.agents.dqn.config import DqnConfig
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.rl.environments import Environment
from qgraph.rl.head import Head
from qgraph.rl.learn.adam import Adam
from qgraph.rl.learn.networks import initial_weights, learnt, network
from qgraph.rl.learn.replay import Batch
from qgraph.rl.learn.tensors import by_name, copies, of_batch, run, variables

Tensor = Any


class DqnLearner:
    """Learns the values of actions; the target network is a copy that follows."""

    teacher = None

    def __init__(self, config: DqnConfig, environment: Environment) -> None:
        self.config, self.head = config, Head("argmax")
        self.bfloat16 = config.precision is LearnerPrecision.MIXED_BFLOAT16
        self.program = network(
            environment.shape,
            config.hidden_sizes,
            environment.actions.count,
            dueling=config.dueling,
            layer_norm=config.layer_norm,
        )
        weights = initial_weights(self.program, np.random.default_rng(config.seed))
        self.policy, self.target = variables(weights, "policy"), variables(weights, "target")
        trained = {k: v for k, v in self.policy.items() if learnt(k)}
        self.adam = Adam(trained, config.learning_rate, 10.0)
        self.taken = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._compiled = tf.function(self._step)

    @property
    def state(self) -> dict[str, Any]:
        """Every variable that a run goes on from, by name."""
        parts = {"policy": self.policy, "target": self.target, "adam": self.adam.state}
        return {**by_name(parts), "taken": self.taken}

    def step(self, batch: Batch) -> tuple[Array, float]:
        """One step of gradient descent: the error of each transition, and the loss."""
        errors, loss = self._compiled(*of_batch(batch))
        return errors.numpy(), float(loss)

    def _step(
        self, x: Tensor, action: Tensor, reward: Tensor, discount: Tensor, following: Tensor,
        importance: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        values = self._values(self.target, following)
        # Double: the learnt network chooses, the target network says what it is worth.
        chooser = self._values(self.policy, following) if self.config.double_q else values
        best = tf.gather(values, tf.argmax(chooser, -1), batch_dims=1)
        wanted = tf.stop_gradient(reward + discount * best)
        with tf.GradientTape() as tape:
            found = tf.gather(self._values(self.policy, x), action, batch_dims=1)
            error = tf.abs(wanted - found)
            huber = tf.where(error < 1, error * error / 2, error - 0.5)
            loss = tf.reduce_mean(importance * huber)
        self.adam.descend(tape, loss)
        self.taken.assign_add(1)
        if self.taken % self.config.target_update_period == 0:
            copies([(self.policy[name], self.target[name]) for name in self.adam.variables])
        return error, loss

    def _values(self, weights: dict[str, Any], x: Tensor) -> Tensor:
        return run(self.program, weights, x, bfloat16=self.bfloat16)
