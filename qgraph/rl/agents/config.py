"""The settings that every training run has, whatever its algorithm."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from qgraph.errors import UsageError
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.rl.agents.setting import (
    AT_LEAST_ONE,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SHARE,
    DeclaredField,
    SettingText,
    declared_fields,
    setting,
)

if TYPE_CHECKING:
    import numpy as np

    from qgraph.rl.environments import Environment
    from qgraph.rl.head import Head
    from qgraph.rl.learn.exploration import Exploration
    from qgraph.rl.learn.limiter import RateLimiter
    from qgraph.rl.learn.memory import Memory

BITS = (32, 16, *range(8, 1, -1))
ACTORS, LEARNING, REPLAY, EXPLORATION = "Actors", "Learning", "Replay", "Exploration"
RUN, COMPRESSION = "Run", "Compression"
OWN = ""  # the panel of an algorithm
PANELS = (RUN, ACTORS, LEARNING, EXPLORATION, REPLAY, OWN, COMPRESSION)  # as they are listed
C = TypeVar("C", bound="RunConfig")


@dataclass(frozen=True)
class RunConfig(ABC):
    """Base of the config of each algorithm. Unset fields have the algorithm's defaults.

    algorithm         its name in the registry
    title             its name in texts
    discrete_actions  whether it chooses one of several actions; else actions are numbers
    precisions        what its learner computes in
    tasks             settings of tasks that need others than the defaults, by the environment's
                      name or a pattern of names; `for_task` applies them

    Raises UsageError for a value out of range, and for settings that do not go together.
    """

    algorithm: ClassVar[str]
    title: ClassVar[str]
    discrete_actions: ClassVar[bool]
    precisions: ClassVar[tuple[LearnerPrecision, ...]] = (
        LearnerPrecision.FLOAT32,
        LearnerPrecision.MIXED_BFLOAT16,
    )
    tasks: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})

    environment: str
    steps: int = setting(
        40_000, "Steps of all actors together.", AT_LEAST_ONE, unit="steps", panel=RUN
    )
    evaluate_every: int = setting(
        1000, "Learner steps between evaluations of the full-precision policy.", AT_LEAST_ONE,
        unit="learner steps", panel=RUN,
    )  # fmt: skip
    episodes: int = setting(
        10, "Episodes in an evaluation.", AT_LEAST_ONE, unit="episodes", panel=RUN
    )
    energy: bool = setting(False, "Estimate the energy of the run with codecarbon.", panel=RUN)
    seed: int = setting(0, "Seed of the run.", NOT_NEGATIVE, panel=RUN)

    actors: int = setting(1, "Number of actors.", AT_LEAST_ONE, unit="actors", panel=ACTORS)
    actor_bits: int = setting(
        32, "Bits of the weights that actors compute with: 32, 16, 8 to 2.", choices=BITS,
        unit="bits", panel=ACTORS,
    )  # fmt: skip
    broadcast_bits: int | None = setting(
        None, "Bits of the weights that are sent to actors.", choices=BITS, unit="bits",
        panel=ACTORS, default_text="as --actor-bits",
    )  # fmt: skip
    first_bits: int | None = setting(
        None, "Bits of the first layer.", choices=BITS, unit="bits", panel=ACTORS,
        default_text="16 for vectors if the others have 8 or fewer",
    )  # fmt: skip
    last_bits: int | None = setting(
        None, "Bits of the last layer.", choices=BITS, unit="bits", panel=ACTORS,
        default_text="16 if the others have 8 or fewer",
    )  # fmt: skip
    actor_update_period: int = setting(
        100, "Steps of an actor between looks for a new policy.", AT_LEAST_ONE, unit="steps",
        panel=ACTORS,
    )  # fmt: skip
    publish_every: int = setting(
        10, "Learner steps between policies that are published.", AT_LEAST_ONE,
        unit="learner steps", panel=ACTORS,
    )  # fmt: skip
    synchronous: bool = setting(
        False, "Actors wait for the newest policy.", panel=ACTORS, flags="--sync/--async"
    )
    on_demand: bool = setting(
        False, "Policies are packed when an actor asks.", panel=ACTORS, flags="--pull/--push"
    )
    quantizer: bool = setting(
        True, "A separate process packs policies; else the learner does.", panel=ACTORS
    )
    in_process: bool = setting(
        False, "Actors take turns in this process: one seed gives one result.", panel=ACTORS,
        flags="--in-process/--processes",
    )  # fmt: skip
    ray: str = setting(
        "", "Address of the Ray cluster that actors run on; `auto` finds the local one.",
        unit="address", panel=ACTORS, default_text="this machine",
    )  # fmt: skip
    nodes: int = setting(
        1, "Cluster nodes to spread actors over.", AT_LEAST_ONE, unit="nodes", panel=ACTORS
    )

    learning_rate: float = setting(
        1e-4, "Adam learning rate.", POSITIVE, panel=LEARNING, earlier="rate"
    )
    batch_size: int = setting(
        256, "Transitions in a batch.", AT_LEAST_ONE, unit="transitions", panel=LEARNING,
        earlier="batch",
    )  # fmt: skip
    discount: float = setting(
        0.99, "Discount of each step.", POSITIVE_SHARE, panel=LEARNING, earlier="gamma"
    )
    reward_clip: float = setting(
        0.0, "Rewards are clipped to +- this for the learner; 0 leaves them. Returns count the "
        "environment's rewards.",
        NOT_NEGATIVE, panel=LEARNING,
    )  # fmt: skip
    hidden_sizes: tuple[int, ...] = setting(
        (256, 256), "Units of the policy's hidden layers.", AT_LEAST_ONE, unit="units",
        panel=LEARNING, earlier="hidden",
    )  # fmt: skip
    precision: LearnerPrecision = setting(  # noqa: RUF009
        LearnerPrecision.FLOAT32, "Number format of the learner: float32, mixed_bfloat16, float16, "
        "mixed_float16 or float64, as the algorithm supports.",
        unit="format", panel=LEARNING,
    )  # fmt: skip

    compress: str = setting(
        "", "Links that compress policies on their way to actors: 'prune(0.5)|quantize(8)'.",
        unit="links", panel=COMPRESSION, default_text="none",
    )  # fmt: skip
    monitor: str = setting(
        "", "Strategy that steers compression: kl_max:14, reward_gap:10, mix:0.5, growth, watch.",
        unit="strategy", panel=COMPRESSION, default_text="none",
    )  # fmt: skip
    monitor_every: int = setting(
        10, "Policies between looks of the monitor.", AT_LEAST_ONE, unit="policies",
        panel=COMPRESSION,
    )  # fmt: skip

    @classmethod
    def for_task(cls: type[C], environment: str, **settings: Any) -> C:
        """The config with the defaults of this task, and with these settings."""
        return cls(environment, **{**cls.task_settings(environment), **settings})

    @classmethod
    def task_settings(cls, environment: str) -> Mapping[str, Any]:
        """The defaults of a task that differ from those of the algorithm."""
        found = (more for name, more in cls.tasks.items() if fnmatchcase(environment, name))
        return next(found, {})

    @classmethod
    def fields(cls) -> Mapping[str, DeclaredField]:
        """The settings by name."""
        return {each.name: each for each in declared_fields(cls)}

    @classmethod
    def check_precision(cls, precision: Any) -> None:
        """Raise UsageError for a number format that the learner does not compute in."""
        chosen = cls.fields()["precision"].read(precision)
        if chosen not in cls.precisions:
            raise UsageError(
                SettingText(
                    "{precision} {value} is not supported by {title}", value=chosen,
                    title=cls.title,
                ),
                hint=f"choose {' or '.join(map(str, cls.precisions))}",
            )  # fmt: skip

    def __post_init__(self) -> None:
        for name, each in self.fields().items():
            object.__setattr__(self, name, each.read(getattr(self, name)))
        if self.broadcast_bits is None:
            object.__setattr__(self, "broadcast_bits", self.actor_bits)
        self.check()

    def check(self) -> None:
        """Raise UsageError for settings that do not go together."""
        self.check_precision(self.precision)
        if self.actor_bits != self.broadcast_bits and (self.first_bits or self.last_bits):
            raise UsageError(
                SettingText(
                    "{first_bits} and {last_bits} need actors that compute in the bits that they "
                    "are sent"
                ),
                hint=SettingText("leave {broadcast_bits} out"),
            )
        self._check_actors()
        if self.compress or self.monitor or self.monitor_every != RunConfig.monitor_every:
            self._check_compression()

    def _check_actors(self) -> None:
        if self.nodes > 1 and not self.ray:
            raise UsageError(SettingText("{nodes} {value} needs {ray}", value=self.nodes))
        if self.nodes > self.actors:
            raise UsageError(
                SettingText("{nodes} is {n}, but {actors} only {m}", n=self.nodes, m=self.actors)
            )
        if not self.quantizer and (self.ray or self.on_demand or self.compress):
            raise UsageError(
                "without a quantizer the learner packs every policy for actors on this machine: "
                "not on Ray, on demand or by a chain of compression"
            )
        if self.ray and self.in_process:
            raise UsageError("actors run in this process or on a Ray cluster, not both")

    def _check_compression(self) -> None:
        if not self.compress:
            raise UsageError(
                SettingText("{monitor} and {monitor_every} need compression"),
                hint=SettingText("{compress} 'quantize(8)'"),
            )
        if not self.compress.strip():
            raise UsageError(
                SettingText("{compress} names no link"),
                hint=SettingText("{compress} 'quantize(8)'"),
            )
        own = (self.actor_bits, self.broadcast_bits, self.first_bits, self.last_bits)
        if own != (32, 32, None, None):
            raise UsageError(
                SettingText("with {compress}, bits are a link of it"),
                hint=SettingText("{compress} 'prune(0.5)|quantize(8)'"),
            )
        if self.synchronous or self.ray:
            other = "{synchronous}" if self.synchronous else "{ray}"
            raise UsageError(SettingText("{compress} does not go with " + other))
        from qgraph.rl.compress.settings import Settings

        Settings(self.compress, self.monitor or "watch", self.monitor_every)

    @property
    @abstractmethod
    def record_steps(self) -> int:
        """Steps of the environment in one record that an actor sends."""

    @abstractmethod
    def memory(self, dtype: np.dtype[Any]) -> Memory:
        """An empty store of records between actors and learner."""

    @abstractmethod
    def limiter(self) -> RateLimiter:
        """What holds actors and learner to one pace."""

    @abstractmethod
    def exploration(self, actor: int, head: Head) -> Exploration:
        """How one of the actors chooses actions."""

    def check_observations(self, environment: Environment) -> None:  # noqa: B027
        """Raise UsageError for observations that the algorithm has no network for."""

    def prepare(self) -> None:  # noqa: B027
        """Called before a new run writes anything; TensorFlow may be imported. Raises QGraphError
        for what could only fail later.
        """

    def as_json(self) -> dict[str, Any]:
        """For `options.json` and actor processes."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return {"algorithm": self.algorithm, **found}
