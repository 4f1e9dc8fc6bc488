"""The settings of TD3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from qgraph.rl.agents.deterministic_config import DeterministicConfig
from qgraph.rl.agents.setting import NOT_NEGATIVE, Panel, SettingValues
from qgraph.rl.agents.shared_settings import REWARD_SCALE, TAU

ALGORITHM = Panel.ALGORITHM


@dataclass(frozen=True)
class Td3Config(DeterministicConfig):
    """TD3 chooses numbers, from vectors.

    Defaults are those of the paper, except for networks, batches and the learning rate.
    """

    algorithm: ClassVar[str] = "td3"
    title: ClassVar[str] = "TD3"

    episodes: int = 5
    actor_update_period: int = 1
    publish_every: int = 2
    learning_rate: float = 3e-4
    samples_per_insert: float = 256.0
    n_step: int = 1
    sigma: float = 0.1
    reward_scale: float = REWARD_SCALE.field(1.0)
    tau: float = TAU.field(0.005)
    policy_delay: int = ALGORITHM.number_of(
        "learner steps",
        2,
        "Learner steps between updates of the policy and the target networks.",
    )
    target_noise: float = ALGORITHM.setting(
        0.2, "Standard deviation of the noise on the target policy's actions.", NOT_NEGATIVE
    )
    target_noise_clip: float = ALGORITHM.setting(
        0.5, "Clip the noise on the target policy's actions to [-x, x].", NOT_NEGATIVE
    )

    tasks: ClassVar[Mapping[str, SettingValues]] = MappingProxyType(
        {"Pendulum-v1": {"reward_scale": 0.1, "learning_rate": 1e-3, "steps": 10_000}}
    )
