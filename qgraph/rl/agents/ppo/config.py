"""The settings of PPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from qgraph.choices import CellKind
from qgraph.errors import UsageError
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.agents.setting import NOT_NEGATIVE, POSITIVE, SHARE, Interval, Panel, SettingValues
from qgraph.rl.agents.shared_settings import (
    CRITIC_HIDDEN_SIZES,
    ENTROPY_COST,
    REWARD_SCALE,
    VALUE_COST,
)
from qgraph.rl.setting_text import SettingText

if TYPE_CHECKING:
    import numpy as np

    from qgraph.rl.environments import Environment
    from qgraph.rl.head import Head
    from qgraph.rl.learn.exploration import Exploration
    from qgraph.rl.learn.limiter import RateLimiter
    from qgraph.rl.learn.memory import Memory

ALGORITHM = Panel.ALGORITHM
LOG_STDS = Interval(-20, 2)


@dataclass(frozen=True)
class PpoConfig(RunConfig):
    """PPO chooses one of several actions, or numbers, and learns from one rollout after another.

    Defaults are those of stable-baselines3, which has them from the paper's table 3 (MuJoCo);
    those of Atari games are the paper's table 5, without the annealing of the clip range.
    """

    algorithm: ClassVar[str] = "ppo"
    title: ClassVar[str] = "PPO"
    discrete_actions: ClassVar[bool] = True
    continuous_actions: ClassVar[bool] = True
    images: ClassVar[bool] = True
    samples_per_insert: ClassVar[float] = 1.0

    steps: int = 200_000
    evaluate_every: int = 10
    actor_update_period: int = 1
    publish_every: int = 1
    synchronous: bool = True
    learning_rate: float = 3e-4
    batch_size: int = Panel.LEARNING.number_of(
        "steps", 2048, "Steps in a rollout, over all actors.", former_name="batch"
    )
    hidden_sizes: tuple[int, ...] = (64, 64)
    critic_hidden_sizes: tuple[int, ...] = CRITIC_HIDDEN_SIZES.field((64, 64))
    reward_scale: float = REWARD_SCALE.field(1.0)
    minibatch_size: int = ALGORITHM.number_of("steps", 64, "Steps in a minibatch of a rollout.")
    epochs: int = ALGORITHM.number_of("epochs", 10, "Times that each step is learned from.")
    clip_range: float = ALGORITHM.setting(
        0.2, "Clip the ratio of probabilities to [1 - x, 1 + x].", POSITIVE
    )
    gae_lambda: float = ALGORITHM.setting(
        0.95, "Lambda of generalized advantage estimation.", SHARE
    )
    normalize_advantages: bool = ALGORITHM.setting(
        True, "Give the advantages of each minibatch a mean of 0 and a deviation of 1."
    )
    value_clip_range: float = ALGORITHM.setting(
        0.0, "Clip the change of a value in a rollout to [-x, x]; 0 disables it.", NOT_NEGATIVE
    )
    value_cost: float = VALUE_COST.field(0.5)
    entropy_cost: float = ENTROPY_COST.field(0.0)
    gradient_norm: float = ALGORITHM.setting(
        0.5, "Scale gradients down to this norm; 0 disables it.", NOT_NEGATIVE
    )
    target_kl: float = ALGORITHM.setting(
        0.0,
        "End the epochs of a rollout where the KL divergence exceeds 1.5 times this; 0 disables "
        "it.",
        NOT_NEGATIVE,
    )
    anneal_learning_rate: bool = ALGORITHM.setting(
        False, "Let the learning rate fall evenly to 0 over the steps of the run."
    )
    initial_log_std: float = ALGORITHM.setting(
        0.0, "First logarithm of the deviation of continuous actions.", LOG_STDS
    )

    recurrent: CellKind | None = ALGORITHM.setting(  # noqa: RUF009
        None,
        "Recurrent layer of the policy and the critic, which then are one network: lstm or gru.",
        unit="cell",
        default_text="none",
    )
    recurrent_units: int = ALGORITHM.number_of("units", 64, "Units of the recurrent layer.")
    sequence_length: int = ALGORITHM.number_of(
        "steps", 16, "Steps of a sequence that gradients of a recurrent policy pass through."
    )

    tasks: ClassVar[Mapping[str, SettingValues]] = MappingProxyType(
        {
            "ALE/*": {
                "actors": 8,
                "batch_size": 1024,
                "minibatch_size": 256,
                "epochs": 3,
                "learning_rate": 2.5e-4,
                "anneal_learning_rate": True,
                "clip_range": 0.1,
                "value_cost": 1.0,
                "entropy_cost": 0.01,
                "hidden_sizes": (512,),
                "reward_clip": 1.0,
            },
        }
    )

    @property
    def learner_steps(self) -> int:
        """Rollouts in the run."""
        return self.steps // self.batch_size

    def check(self) -> None:
        super().check()
        if self.steps < self.batch_size:
            raise UsageError(
                SettingText(
                    "{steps} {value} is too few for one rollout: {batch_size} is {batch}",
                    value=self.steps, batch=self.batch_size,
                ),
                hint=SettingText("{steps} {batch} or more", batch=self.batch_size),
            )  # fmt: skip
        self.check_batch_of(self.minibatch_size, f"minibatches of {self.minibatch_size}")
        if self.recurrent is not None:
            self._check_recurrent()
        if not self.synchronous:
            return
        self.check_batch_of(self.actors, f"{self.actors} actors that wait for each other")
        for name in ("publish_every", "actor_update_period"):
            if getattr(self, name) > 1:
                raise UsageError(
                    SettingText(
                        f"{{{name}}} must be 1, not {{value}}: actors wait for the policy of each "
                        "learner step",
                        value=getattr(self, name),
                    ),
                    hint=SettingText(f"{{{name}}} 1, or turn {{synchronous}} off"),
                )

    def _check_recurrent(self) -> None:
        if self.minibatch_size % self.sequence_length:
            raise UsageError(
                SettingText(
                    "{minibatch_size} {value} is not a multiple of {sequence_length} {length}",
                    value=self.minibatch_size, length=self.sequence_length,
                ),
                hint=SettingText("minibatches of a recurrent policy consist of sequences"),
            )  # fmt: skip
        for name in ("compress", "train_bits"):
            if getattr(self, name):
                raise UsageError(
                    SettingText(f"{{{name}}} is not for a recurrent policy"),
                    hint=SettingText("leave {option} out, or {recurrent}", option=name),
                )
        if self.broadcast_bits not in (None, self.actor_bits):
            raise UsageError(
                SettingText("{broadcast_bits} must equal {actor_bits} for a recurrent policy"),
                hint=SettingText("leave {broadcast_bits} out"),
            )

    def check_observations(self, environment: Environment) -> None:
        super().check_observations(environment)
        if self.recurrent is not None and len(environment.shape) != 1:
            raise UsageError(
                SettingText("{recurrent} is for vectors; `{name}` gives {shape}",
                            name=self.environment, shape=list(environment.shape)),
                hint=SettingText("leave {recurrent} out"),
            )  # fmt: skip

    @property
    def state_size(self) -> int:
        """Numbers in the states of a recurrent policy; 0 for others."""
        if self.recurrent is None:
            return 0
        return self.recurrent_units * (2 if self.recurrent is CellKind.LSTM else 1)

    @property
    def record_steps(self) -> int:
        """1: the learner estimates advantages from single steps."""
        return 1

    def needed_version(self, steps: int) -> int:
        """Each rollout is made by the policy of the learner step before, if actors wait for it."""
        return steps // (self.batch_size // self.actors) if self.synchronous else 0

    def memory(self, dtype: np.dtype[np.void]) -> Memory:
        from qgraph.rl.learn.queue import RolloutMemory

        return RolloutMemory(dtype)

    def limiter(self) -> RateLimiter:
        """Actors take turns with the learner, or are up to two rollouts ahead of it."""
        from qgraph.rl.learn.limiter import RateLimiter, TakingTurns

        kind = TakingTurns if self.synchronous else RateLimiter
        return kind(self.samples_per_insert, self.batch_size, self.batch_size)

    def exploration(self, actor: int, head: Head) -> Exploration:
        from qgraph.rl.learn.exploration import Categorical, Gaussian

        return Categorical() if head.discrete else Gaussian(head)
