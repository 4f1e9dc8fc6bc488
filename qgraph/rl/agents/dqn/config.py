"""The settings of DQN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from qgraph.rl.agents.replay_config import ReplayConfig
from qgraph.rl.agents.setting import NOT_NEGATIVE, SHARE, Panel, SettingValues
from qgraph.rl.agents.shared_settings import LAYER_NORM, TARGET_UPDATE_PERIOD

if TYPE_CHECKING:
    from qgraph.rl.head import Head
    from qgraph.rl.learn.exploration import Exploration

ALGORITHM, EXPLORATION = Panel.ALGORITHM, Panel.EXPLORATION


@dataclass(frozen=True)
class DqnConfig(ReplayConfig):
    """DQN chooses one of several actions, from vectors or images."""

    algorithm: ClassVar[str] = "dqn"
    title: ClassVar[str] = "DQN"
    discrete_actions: ClassVar[bool] = True
    images: ClassVar[bool] = True

    batch_size: int = 128
    learning_rate: float = 5e-4
    replay_capacity: int = 100_000
    target_update_period: int = TARGET_UPDATE_PERIOD.field(100)
    double_q: bool = ALGORITHM.setting(True, "Use double Q-learning.", former_name="double")
    dueling: bool = ALGORITHM.setting(False, "Use dueling heads.")
    layer_norm: bool = LAYER_NORM.field(False)
    epsilon: float = EXPLORATION.setting(
        0.05,
        "Final share of random actions. With several actors, their shares are spaced up to it.",
        SHARE,
        former_name="explore",
    )
    epsilon_steps: int = EXPLORATION.setting(
        10_000,
        "Environment steps over which the share of random actions falls from 1 to epsilon.",
        NOT_NEGATIVE,
        unit="steps",
        former_name="explore_steps",
    )
    epsilon_hold: int = EXPLORATION.number_of(
        "steps",
        1,
        "Mean number of steps that a random action is repeated.",
        former_name="explore_hold",
    )

    tasks: ClassVar[Mapping[str, SettingValues]] = MappingProxyType(
        {
            # A random action of one step never gets the car up.
            "MountainCar-v0": {"epsilon_steps": 20_000, "epsilon_hold": 20},
            # Settings of the papers, with fewer frames.
            "ALE/*": {
                "steps": 1_000_000,
                "hidden_sizes": (512,),
                "batch_size": 32,
                "samples_per_insert": 8.0,
                "n_step": 3,
                "learning_rate": 1e-4,
                "epsilon_steps": 250_000,
                "replay_capacity": 50_000,  # 56 kB each
                "min_replay_size": 10_000,
                "target_update_period": 2000,
                "priority_exponent": 0.6,
                "dueling": True,
                "reward_clip": 1.0,
                "evaluate_every": 10_000,
                "episodes": 3,
            },
        }
    )

    def check(self) -> None:
        super().check()
        if self.train_bits is not None and self.dueling:
            raise self.excluded("dueling")

    def exploration(self, actor: int, head: Head) -> Exploration:
        from qgraph.rl.learn.exploration import Epsilon, epsilon_ladder

        last = epsilon_ladder(actor, self.actors, self.epsilon)
        return Epsilon(last, self.epsilon_steps // self.actors, self.epsilon_hold)
