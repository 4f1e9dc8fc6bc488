"""IMPALA (Espeholt et al., 2018) as in AcceRL: an actor-critic that learns from trajectories of
compressed policies, with corrections.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from qgraph.foreign import Tensor, Variable
from qgraph.ir.types import Array
from qgraph.rl.agents.bits_learner import BitsLearner
from qgraph.rl.agents.impala.config import ImpalaConfig
from qgraph.rl.agents.learner import Teacher
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.rl.compress.chain_policy import PolicySpec
from qgraph.rl.correct import Correction, Trajectories
from qgraph.rl.environments import Environment
from qgraph.rl.head import Head
from qgraph.rl.learn.adam import Adam
from qgraph.rl.learn.networks import TINY, actor_critic, initial_weights, is_trained
from qgraph.rl.learn.queue import follows
from qgraph.rl.learn.replay import Batch
from qgraph.rl.learn.replicas import joined, split
from qgraph.rl.learn.tensors import TRANSITION, by_name, run_all, variables
from qgraph.train.replicas import strategy_of

NORM, EPSILON = 0.5, 1e-5  # of Adam; they keep one unusual batch from ruining a good policy


class ImpalaLearner(BitsLearner):
    """Policy and critic share a torso; actors get the policy only.

    The critic's head has one value, V(x), or one for each action, Q(x, .), as the targets of the
    correction need.
    """

    def __init__(self, config: ImpalaConfig, environment: Environment) -> None:
        self.config, self.head = config, Head("categorical")
        self.bfloat16 = config.precision is LearnerPrecision.MIXED_BFLOAT16
        self.correct = Correction.parse(config.correction)
        actions = environment.actions.count
        values = actions if self.correct.of_actions else 1
        self.program, self.network = actor_critic(
            environment.shape, config.hidden_sizes, actions, values, layer_norm=config.layer_norm
        )
        rng = np.random.default_rng(config.seed)
        self.strategy = strategy_of(config.replicas)
        with self.strategy.scope():
            self.weights = variables(initial_weights(self.network, rng, TINY), "policy")
            trained = {name: v for name, v in self.weights.items() if is_trained(name)}
            self.adam = Adam(trained, config.learning_rate, NORM, EPSILON)
        self.policy = {name: self.weights[name] for name in self.program.weight_shapes}
        with_values = PolicySpec(self.network, self.head, "value")
        self.teacher = None if self.correct.of_actions else Teacher(with_values, self.weights)
        self._compile()

    def _compile(self) -> None:
        self._compiled = tf.function(self._run, autograph=False)

    def _train_beside(self, thresholds: Adam) -> None:
        self.adam.beside = [thresholds]

    @property
    def acting(self) -> Teacher:
        """The policy, as actors get it."""
        return Teacher(PolicySpec(self.program, self.head), self.policy)

    @property
    def state(self) -> dict[str, Variable]:
        """Every variable that a resumed run needs, by name."""
        return {
            **by_name({"network": self.weights, "adam": self.adam.state}),
            **self.bits_state,
        }

    def step(self, batch: Batch) -> tuple[Array, float]:
        """Learn from trajectories [n, b]: the critic's error of each step, and the loss.

        Raises UsageError if the correction needs log probabilities that records do not have.
        """
        records = batch.records
        log_mu = records["log_probability"]
        columns = [*(records[name] for name in TRANSITION), follows(records)]
        if np.isfinite(log_mu).all():
            columns.append(log_mu)
        errors, loss = self._compiled(*(split(self.strategy, column) for column in columns))
        return errors.numpy(), float(loss)

    def _run(self, *columns: Tensor) -> tuple[Tensor, Tensor]:
        """A step of each replica; `Adam` adds their gradients."""
        errors, loss = self.strategy.run(self._step, args=columns)
        return joined(self.strategy, errors), self.strategy.reduce("MEAN", loss, axis=None)

    def _step(
        self, x: Tensor, action: Tensor, reward: Tensor, discount: Tensor, following: Tensor,
        same_episode: Tensor, log_mu: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        with tf.GradientTape() as tape:
            logits, critic = self._outputs(x)
            logs = tf.nn.log_softmax(logits)
            log_pi = tf.gather(logs, action, batch_dims=2)
            values = self._values(logits, critic)
            chosen = tf.gather(critic, action, batch_dims=2) if self.correct.of_actions else values
            steps = Trajectories(
                tf.stop_gradient(log_pi),
                log_mu,
                self.config.reward_scale * reward,
                discount,
                same_episode,
                tf.stop_gradient(values),
                self._next_values(values, following, same_episode),
                tf.stop_gradient(chosen) if self.correct.of_actions else None,
            )
            found = self.correct(steps, tf)
            # Equation 4 of AcceRL gives the gradients of these losses.
            errors = found.targets - chosen
            policy_loss = -tf.reduce_mean(found.weights * found.advantages * log_pi)
            value_loss = tf.reduce_mean(errors * errors) / 2
            entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(logs) * logs, -1))
            config = self.config
            loss = policy_loss + config.value_cost * value_loss - config.entropy_cost * entropy
        self.adam.descend(tape, loss)
        return tf.abs(errors), loss

    def _next_values(self, values: Tensor, following: Tensor, same_episode: Tensor) -> Tensor:
        """V after each step: of the next row, or computed if the next row is another state."""
        elsewhere = tf.where(same_episode == 0)  # the last row is among them
        found = self._values(*self._outputs(tf.gather_nd(following, elsewhere)))
        later = tf.concat([values[1:], values[-1:]], 0)
        return tf.stop_gradient(tf.tensor_scatter_nd_update(later, elsewhere, found))

    def _values(self, logits: Tensor, critic: Tensor) -> Tensor:
        """V(x) of outputs: the mean of Q(x, .) under the policy, or the critic's value."""
        if self.correct.of_actions:
            return tf.reduce_sum(tf.nn.softmax(logits) * critic, -1)
        return critic[..., 0]

    def _outputs(self, x: Tensor) -> list[Tensor]:
        """Logits and values [..., m] of observations [..., *shape]."""
        shape = self.program.shape
        flat = tf.reshape(x, [-1, *shape])
        found = run_all(self.network, self.weights, flat, bfloat16=self.bfloat16)
        if self.bits is not None:  # values stay float
            found[0] = self.bits(self.policy, flat)
        front = tf.shape(x)[: x.shape.rank - len(shape)]
        return [tf.reshape(y, tf.concat([front, [y.shape[-1]]], 0)) for y in found]
