"""The settings of algorithms that learn from transitions in a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qgraph.errors import UsageError
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.agents.setting import POSITIVE, SHARE, Panel
from qgraph.rl.setting_text import SettingText

if TYPE_CHECKING:
    import numpy as np

    from qgraph.rl.learn.limiter import RateLimiter
    from qgraph.rl.learn.memory import Memory

REPLAY = Panel.REPLAY


@dataclass(frozen=True)
class ReplayConfig(RunConfig):
    """Base of configs with a replay, which is sampled more than once."""

    samples_per_insert: float = REPLAY.setting(
        64.0, "Mean number of times that a transition is sampled.", POSITIVE, former_name="spi"
    )
    min_replay_size: int = REPLAY.number_of(
        "transitions",
        1000,
        "Transitions in the replay before learning starts.",
        former_name="least",
    )
    replay_capacity: int = REPLAY.number_of(
        "transitions", 1_000_000, "Capacity of the replay, in transitions.", former_name="capacity"
    )
    priority_exponent: float = REPLAY.setting(
        0.0, "Exponent of priorities; 0 means uniform sampling.", SHARE, former_name="alpha"
    )
    n_step: int = REPLAY.number_of(
        "steps", 5, "Environment steps in an n-step transition.", former_name="n"
    )

    def check(self) -> None:
        super().check()
        if self.steps <= self.min_replay_size:
            raise UsageError(
                SettingText(
                    "{steps} {value} is too few: learning starts after {least} steps",
                    value=self.steps, least=self.min_replay_size,
                ),
                hint=SettingText(
                    "more {steps} than {least}, or a smaller {min_replay_size}",
                    least=self.min_replay_size,
                ),
            )  # fmt: skip
        if self.min_replay_size > self.replay_capacity:
            raise UsageError(
                SettingText(
                    "{min_replay_size} is {least}, but {replay_capacity} is only {most}",
                    least=self.min_replay_size, most=self.replay_capacity,
                )
            )  # fmt: skip

    @property
    def record_steps(self) -> int:
        return self.n_step

    def memory(self, dtype: np.dtype[np.void]) -> Memory:
        from qgraph.rl.learn.replay import Replay

        return Replay(min(self.replay_capacity, self.steps), dtype, self.priority_exponent)

    def limiter(self) -> RateLimiter:
        from qgraph.rl.learn.limiter import RateLimiter

        return RateLimiter(self.samples_per_insert, self.min_replay_size, self.batch_size)
