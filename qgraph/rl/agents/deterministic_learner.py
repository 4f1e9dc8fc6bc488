"""The common part of learners with a deterministic policy.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import numpy as np

from qgraph.foreign import Tensor
from qgraph.rl.agents.critic_learner import CriticLearner
from qgraph.rl.agents.deterministic_config import DeterministicConfig
from qgraph.rl.agents.replay_learner import Weights
from qgraph.rl.environments import Environment
from qgraph.rl.head import Head
from qgraph.rl.learn.adam import Adam
from qgraph.rl.learn.networks import TINY, initial_weights, network
from qgraph.rl.learn.tensors import variables


class DeterministicLearner(CriticLearner):
    """Base of learners with a deterministic policy, critics of pairs, and target networks of all.

    outputs        numbers that a critic computes for a pair of observation and action
    two_critics    whether there are two critics; else there is one
    layer_norm     whether networks normalize after the first layer
    gradient_norm  gradients of policy or critics are scaled down to this norm; 0 leaves them

    Actions are in [-1, 1] here and in the replay; the head scales them for the environment.
    """

    def __init__(
        self, config: DeterministicConfig, environment: Environment, *, outputs: int = 1,
        two_critics: bool = False, layer_norm: bool = False, gradient_norm: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(config)
        actions, shape = environment.actions, environment.shape
        self.head = Head("scale", actions.low, actions.high)
        width = len(actions.low)
        self.program = network(
            shape, config.hidden_sizes, width, last="tanh", layer_norm=layer_norm
        )
        pair, sizes = (shape[0] + width,), config.critic_hidden_sizes
        self.critic_program = network(pair, sizes, outputs, layer_norm=layer_norm)
        rng = np.random.default_rng(config.seed)
        policy = initial_weights(self.program, rng, TINY)
        critic = (
            self._two_critics(rng)
            if two_critics
            else initial_weights(self.critic_program, rng, TINY)
        )
        self.policy, self.target = variables(policy, "policy"), variables(policy, "target")
        self.critic = variables(critic, "critic")
        self.critic_target = variables(critic, "critic_target")
        self.policy_adam = Adam(self.policy, config.learning_rate, gradient_norm)
        self.critic_adam = Adam(self.critic, config.learning_rate, gradient_norm)

    def _train_beside(self, thresholds: Adam) -> None:
        self.policy_adam.beside = [thresholds]

    @property
    def parts(self) -> dict[str, Weights]:
        return {
            "policy": self.policy,
            "target": self.target,
            "critic": self.critic,
            "critic_target": self.critic_target,
            "policy_adam": self.policy_adam.state,
            "critic_adam": self.critic_adam.state,
        }

    def _update_targets(self, tau: float) -> None:
        """Move target networks by a share `tau` of the way to the networks that learn."""
        for trained, target in ((self.policy, self.target), (self.critic, self.critic_target)):
            for name, variable in target.items():
                value: Tensor = trained[name]
                variable.assign(value if tau == 1 else variable + tau * (value - variable))

    def _act(self, weights: Weights, x: Tensor) -> Tensor:
        """The policy's actions [n, a] in [-1, 1]."""
        return self._run(self.program, weights, x)
