"""The settings of algorithms with a deterministic policy and critics of its actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from qgraph.rl.agents.replay_config import ReplayConfig
from qgraph.rl.agents.shared_settings import CRITIC_HIDDEN_SIZES, SIGMA

if TYPE_CHECKING:
    from qgraph.rl.head import Head
    from qgraph.rl.learn.exploration import Exploration


@dataclass(frozen=True)
class DeterministicConfig(ReplayConfig):
    """Base of configs of algorithms that compute an action of numbers from a vector.

    Actors explore by Gaussian noise on the action.
    """

    continuous_actions: ClassVar[bool] = True

    critic_hidden_sizes: tuple[int, ...] = CRITIC_HIDDEN_SIZES.field((256, 256))
    sigma: float = SIGMA.field(0.2)

    def exploration(self, actor: int, head: Head) -> Exploration:
        from qgraph.rl.learn.exploration import Noise, sigma_ladder

        return Noise(sigma_ladder(actor, self.actors, self.sigma), head)
