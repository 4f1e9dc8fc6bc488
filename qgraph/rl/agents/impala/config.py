"""The settings of IMPALA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from qgraph.errors import UsageError
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.agents.setting import Panel, SettingValues
from qgraph.rl.agents.shared_settings import ENTROPY_COST, LAYER_NORM, REWARD_SCALE, VALUE_COST
from qgraph.rl.setting_text import SettingText

if TYPE_CHECKING:
    import numpy as np

    from qgraph.rl.head import Head
    from qgraph.rl.learn.exploration import Exploration
    from qgraph.rl.learn.limiter import RateLimiter
    from qgraph.rl.learn.memory import Memory

ALGORITHM = Panel.ALGORITHM


@dataclass(frozen=True)
class ImpalaConfig(RunConfig):
    """IMPALA chooses one of several actions, and learns from each step once, in order.

    Defaults are those of AcceRL, table 5.
    """

    algorithm: ClassVar[str] = "impala"
    title: ClassVar[str] = "IMPALA"
    discrete_actions: ClassVar[bool] = True
    images: ClassVar[bool] = True
    samples_per_insert: ClassVar[float] = 1.0

    steps: int = 400_000
    evaluate_every: int = 250
    actor_update_period: int = 5
    publish_every: int = 1
    learning_rate: float = 3e-4
    batch_size: int = Panel.LEARNING.number_of(
        "steps", 160, "Steps in a batch, over all its trajectories.", former_name="batch"
    )
    layer_norm: bool = LAYER_NORM.field(False)
    reward_scale: float = REWARD_SCALE.field(1.0)
    unroll_length: int = ALGORITHM.number_of("steps", 5, "Steps in a trajectory.", former_name="n")
    correction: str = ALGORITHM.setting(
        "vtrace,is",
        "Off-policy correction: vtrace, retrace, tree_backup, is or none, with optional constants "
        "such as vtrace(rho=1,c=0.9).",
        unit="list",
        former_name="correct",
    )
    entropy_cost: float = ENTROPY_COST.field(0.02)
    value_cost: float = VALUE_COST.field(0.25)
    replicas: int = ALGORITHM.number_of("GPUs", 1, "Number of GPUs that share each batch.")

    tasks: ClassVar[Mapping[str, SettingValues]] = MappingProxyType(
        {
            # Each step has a reward, so values are about 100. When the pole balances, advantages
            # are small beside the entropy.
            "CartPole-v1": {
                "steps": 200_000,
                "hidden_sizes": (64, 64),
                "layer_norm": True,
                "reward_scale": 0.05,
                "entropy_cost": 0.005,
            },
            "ALE/*": {"reward_clip": 1.0},
        }
    )

    @property
    def partial_steps(self) -> int:
        """The most steps of all actors that are in incomplete trajectories."""
        return self.actors * (self.unroll_length - 1)

    def check(self) -> None:
        super().check()
        from qgraph.rl.correct import Correction

        Correction.parse(self.correction)
        if self.train_bits is not None and self.replicas > 1:
            raise self.excluded("replicas")
        if self.steps < self.batch_size + self.partial_steps:
            raise UsageError(
                SettingText(
                    "{steps} {value} is too few for one batch: {batch_size} is {batch}, and "
                    "{actors} {count} may each have begun another trajectory",
                    value=self.steps, batch=self.batch_size, count=self.actors,
                ),
                hint=SettingText(
                    "{steps} {least} or more", least=self.batch_size + self.partial_steps
                ),
            )  # fmt: skip
        share = self.unroll_length * self.replicas
        each = f" for each of {self.replicas} replicas" if self.replicas > 1 else ""
        self.check_batch_of(share, f"trajectories of {self.unroll_length}{each}")

    @property
    def record_steps(self) -> int:
        """1: the learner builds trajectories from single steps."""
        return 1

    def memory(self, dtype: np.dtype[np.void]) -> Memory:
        from qgraph.rl.learn.queue import TrajectoryQueue

        return TrajectoryQueue(self.unroll_length, dtype)

    def limiter(self) -> RateLimiter:
        """The learner uses each step once, and the queue holds two batches at most.

        Up to n - 1 steps of each actor are in an incomplete trajectory, so a batch is complete for
        sure only after so many more steps.
        """
        from qgraph.rl.learn.limiter import RateLimiter

        min_inserts = self.batch_size + self.partial_steps
        return RateLimiter(self.samples_per_insert, min_inserts, self.batch_size)

    def exploration(self, actor: int, head: Head) -> Exploration:
        from qgraph.rl.learn.exploration import Categorical

        return Categorical()

    def warnings(self) -> list[str]:
        if self.replicas == 1:
            return []
        from qgraph.train.replicas import gpu_count

        if gpu_count():
            return []
        return [
            f"{self.replicas} replicas without a GPU share the processor: this tries it out, and "
            "is not faster than one"
        ]

    def prepare(self) -> None:
        from qgraph.rl.correct import Correction
        from qgraph.rl.correct.trial import try_once
        from qgraph.train.replicas import strategy_of

        strategy_of(self.replicas)  # devices must be split before TensorFlow uses them
        trajectories = self.batch_size // self.unroll_length // self.replicas
        try_once(Correction.parse(self.correction), self.unroll_length, trajectories)
