"""DQN (Mnih et al., 2015): double, dueling and prioritized as options.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from qgraph.foreign import Tensor
from qgraph.rl.agents.dqn.config import DqnConfig
from qgraph.rl.agents.replay_learner import ReplayLearner, Weights
from qgraph.rl.environments import Environment
from qgraph.rl.head import Head
from qgraph.rl.learn.adam import Adam
from qgraph.rl.learn.networks import initial_weights, is_trained, network
from qgraph.rl.learn.tensors import Transitions, copies, variables

GRADIENT_NORM = 10.0


class DqnLearner(ReplayLearner):
    """Learns the values of actions; the target network is an earlier copy."""

    def __init__(self, config: DqnConfig, environment: Environment) -> None:
        super().__init__(config)
        self.config, self.head = config, Head("argmax")
        self.program = network(
            environment.shape,
            config.hidden_sizes,
            environment.actions.count,
            dueling=config.dueling,
            layer_norm=config.layer_norm,
        )
        weights = initial_weights(self.program, np.random.default_rng(config.seed))
        self.policy, self.target = variables(weights, "policy"), variables(weights, "target")
        trained = {k: v for k, v in self.policy.items() if is_trained(k)}
        self.adam = Adam(trained, config.learning_rate, GRADIENT_NORM)

    def _train_beside(self, thresholds: Adam) -> None:
        self.adam.beside = [thresholds]

    @property
    def parts(self) -> dict[str, Weights]:
        return {"policy": self.policy, "target": self.target, "adam": self.adam.state}

    def _step(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        x, action, reward, discount, following, importance = batch
        values = self._run(self.program, self.target, following)
        # Double Q-learning: the trained network chooses an action, the target network values it.
        double = self.config.double_q
        chooser = self._run(self.program, self.policy, following) if double else values
        best = tf.argmax(chooser, -1)
        wanted = tf.stop_gradient(reward + discount * tf.gather(values, best, batch_dims=1))
        with tf.GradientTape() as tape:
            found = tf.gather(self._run(self.program, self.policy, x), action, batch_dims=1)
            error = tf.abs(wanted - found)
            huber = tf.where(error < 1, error * error / 2, error - 0.5)
            loss = tf.reduce_mean(importance * huber)
        self.adam.descend(tape, loss)
        self._count_step(self.config.target_update_period, self._copy_to_target)
        return error, loss

    def _copy_to_target(self) -> None:
        copies([(self.policy[name], self.target[name]) for name in self.adam.variables])
