"""The settings of SAC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from qgraph.errors import UsageError
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.rl.agents.replay_config import ReplayConfig
from qgraph.rl.agents.setting import Interval, Panel, SettingValues
from qgraph.rl.agents.shared_settings import (
    CRITIC_HIDDEN_SIZES,
    REWARD_SCALE,
    TARGET_UPDATE_PERIOD,
    TAU,
)
from qgraph.rl.half.methods import METHODS, check_methods
from qgraph.rl.setting_text import SettingText

if TYPE_CHECKING:
    from qgraph.rl.head import Head
    from qgraph.rl.learn.exploration import Exploration

GROUPS: dict[tuple[str, ...], tuple[str, ...]] = {("all",): METHODS, ("none",): ()}


@dataclass(frozen=True)
class SacConfig(ReplayConfig):
    """SAC chooses numbers, from vectors or images, and can learn in float16.

    Defaults are those of pytorch_sac, except for networks, batches and the learning rate.
    """

    algorithm: ClassVar[str] = "sac"
    title: ClassVar[str] = "SAC"
    continuous_actions: ClassVar[bool] = True
    images: ClassVar[bool] = True
    image_size: ClassVar[int] = 15  # for the encoder's four convolutions
    precisions: ClassVar[tuple[LearnerPrecision, ...]] = (
        LearnerPrecision.FLOAT32,
        LearnerPrecision.FLOAT16,
        LearnerPrecision.MIXED_FLOAT16,
        LearnerPrecision.FLOAT64,
    )

    episodes: int = 5
    actor_update_period: int = 1
    publish_every: int = 1
    learning_rate: float = 3e-4
    samples_per_insert: float = 256.0
    n_step: int = 1
    target_update_period: int = TARGET_UPDATE_PERIOD.field(2)
    critic_hidden_sizes: tuple[int, ...] = CRITIC_HIDDEN_SIZES.field((256, 256))
    reward_scale: float = REWARD_SCALE.field(1.0)
    tau: float = TAU.field(0.005)
    float16_methods: tuple[str, ...] = Panel.ALGORITHM.setting(
        (),
        "Methods that make float16 learning stable: `all`, `none`, or names, comma separated.",
        unit="methods",
        former_name="methods",
        default_text="none",
    )
    significand: int | None = Panel.ALGORITHM.setting(
        None,
        "Round numbers of the learner to this many significand bits.",
        Interval(1, 10),
        unit="bits",
        default_text="those of the precision",
    )

    tasks: ClassVar[Mapping[str, SettingValues]] = MappingProxyType(
        {
            # Values of 1600 would have a step of 1 in float16.
            "Pendulum-v1": {"reward_scale": 0.1, "learning_rate": 1e-3, "steps": 10_000},
            # Eight rewards in each step.
            "dm_control:cartpole-swingup:held": {
                "reward_scale": 0.1,
                "learning_rate": 1e-3,
                "steps": 12_000,
            },
            # Rewards of up to eight.
            "dm_control:*:pixels": {"reward_scale": 0.1, "learning_rate": 1e-3},
        }
    )

    def check(self) -> None:
        super().check()
        methods = GROUPS.get(self.float16_methods, self.float16_methods)
        object.__setattr__(self, "float16_methods", methods)
        check_methods(methods)
        for name in ("float16_methods", "significand"):
            if self.train_bits is not None and getattr(self, name):
                raise self.excluded(name)
        narrow = (LearnerPrecision.FLOAT16, LearnerPrecision.FLOAT32)
        if self.significand is not None and self.precision not in narrow:
            raise UsageError(
                SettingText("{significand} needs {precision} float16 or float32"),
                hint=f"{self.precision} has its own significands",
            )

    def exploration(self, actor: int, head: Head) -> Exploration:
        from qgraph.rl.head import Head
        from qgraph.rl.learn.exploration import SquashedGaussian

        return SquashedGaussian(Head("scale", head.low, head.high))
