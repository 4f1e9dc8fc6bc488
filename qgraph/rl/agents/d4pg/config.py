"""The settings of D4PG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from qgraph.errors import UsageError
from qgraph.rl.agents.replay_config import ReplayConfig
from qgraph.rl.agents.setting import POSITIVE, Interval, setting
from qgraph.rl.agents.shared_settings import (
    CRITIC_HIDDEN_SIZES,
    LAYER_NORM,
    SIGMA,
    TARGET_UPDATE_PERIOD,
)

if TYPE_CHECKING:
    from qgraph.rl.environments import Environment
    from qgraph.rl.head import Head
    from qgraph.rl.learn.exploration import Exploration


@dataclass(frozen=True)
class D4pgConfig(ReplayConfig):
    """D4PG chooses numbers, from vectors."""

    algorithm: ClassVar[str] = "d4pg"
    title: ClassVar[str] = "D4PG"
    discrete_actions: ClassVar[bool] = False

    episodes: int = 5
    hidden_sizes: tuple[int, ...] = (256, 256, 256)
    critic_hidden_sizes: tuple[int, ...] = setting((512, 512, 256), CRITIC_HIDDEN_SIZES)
    target_update_period: int = setting(100, TARGET_UPDATE_PERIOD)
    layer_norm: bool = setting(False, LAYER_NORM)
    sigma: float = setting(0.2, SIGMA)
    atoms: int = setting(51, "Atoms of the critic's distribution.", Interval(2), unit="atoms")
    v_max: float = setting(
        150.0, "The critic's distribution reaches from -v_max to v_max.", POSITIVE,
        earlier="value_limit",
    )  # fmt: skip

    def exploration(self, actor: int, head: Head) -> Exploration:
        from qgraph.rl.learn.exploration import Noise, sigma_ladder

        return Noise(sigma_ladder(actor, self.actors, self.sigma), head)

    def check_observations(self, environment: Environment) -> None:
        if len(environment.shape) > 1:
            raise UsageError(
                f"D4PG has no critic for images, which `{self.environment}` gives",
                hint="SAC learns numbers from images",
            )
