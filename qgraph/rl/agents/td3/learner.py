"""TD3 (Fujimoto et al., 2018): two critics, a delayed policy and smoothed targets.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import tensorflow as tf

from qgraph.foreign import Tensor
from qgraph.rl.agents.critic_learner import CRITIC_NAMES
from qgraph.rl.agents.deterministic_learner import DeterministicLearner
from qgraph.rl.agents.td3.config import Td3Config
from qgraph.rl.environments import Environment
from qgraph.rl.learn.tensors import Transitions
from qgraph.stored import part


class Td3Learner(DeterministicLearner):
    """Each critic computes the value of a pair. Both learn at each step, the policy less often."""

    def __init__(self, config: Td3Config, environment: Environment) -> None:
        super().__init__(config, environment, two_critics=True)
        self.config = config

    def _step(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        x, action, reward, discount, following, importance = batch
        chosen = smoothed(
            self._act(self.target, following),
            self._noise(following),
            self.config.target_noise_clip,
        )
        values = self.pair_values(self.critic_target, following, chosen)
        wanted = self.config.reward_scale * reward + discount * tf.minimum(*values)
        with tf.GradientTape() as tape:
            errors = [value - wanted for value in self.pair_values(self.critic, x, action)]
            loss = tf.add_n([tf.reduce_mean(importance * tf.square(e)) for e in errors])
        self.critic_adam.descend(tape, loss)
        self._count_step(self.config.policy_delay, lambda: self._update_policy(x))
        return tf.add_n([tf.abs(error) for error in errors]) / len(errors), loss

    def _update_policy(self, x: Tensor) -> None:
        """Move the policy up the first critic, then the target networks."""
        with tf.GradientTape() as tape:
            first = part(self.critic, CRITIC_NAMES[0])
            loss = -tf.reduce_mean(self._criticize(first, x, self._act(self.policy, x)))
        self.policy_adam.descend(tape, loss)
        self._update_targets(self.config.tau)

    def _noise(self, following: Tensor) -> Tensor:
        """Gaussian noise [n, a] for target actions, by the seed and the number of the step."""
        seed = tf.stack([self.config.seed, self.taken])
        shape = [tf.shape(following)[0], self.program.size(self.program.outputs[0])]
        return self.config.target_noise * tf.random.stateless_normal(shape, seed)


def smoothed(action: Tensor, noise: Tensor, clip: float) -> Tensor:
    """Actions in [-1, 1] plus noise that is clipped to +-`clip` (equation 15 of the paper)."""
    return tf.clip_by_value(action + tf.clip_by_value(noise, -clip, clip), -1.0, 1.0)
