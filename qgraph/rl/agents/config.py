"""The config of a training run: the base of every algorithm's."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from qgraph.rl.agents.compression_settings import CompressionSettings
from qgraph.rl.agents.setting import SettingValues

if TYPE_CHECKING:
    import numpy as np

    from qgraph.rl.environments import Environment
    from qgraph.rl.head import Head
    from qgraph.rl.learn.exploration import Exploration
    from qgraph.rl.learn.limiter import RateLimiter
    from qgraph.rl.learn.memory import Memory

C = TypeVar("C", bound="RunConfig")


@dataclass(frozen=True)
class RunConfig(CompressionSettings, ABC):
    """Base of the config of each algorithm. Unset fields have the algorithm's defaults.

    algorithm         its name in the registry
    discrete_actions  whether it chooses one of several actions; else actions are numbers
    images            whether it learns from images; all learn from vectors
    tasks             settings of tasks that need others than the defaults, by the environment's
                      name or a pattern of names; `for_task` applies them
    """

    algorithm: ClassVar[str]
    discrete_actions: ClassVar[bool]
    images: ClassVar[bool] = False
    tasks: ClassVar[Mapping[str, SettingValues]] = MappingProxyType({})

    @classmethod
    def for_task(cls: type[C], environment: str, **settings: Any) -> C:
        """The config with the defaults of this task, and with these settings."""
        return cls(environment, **{**cls.task_settings(environment), **settings})

    @classmethod
    def task_settings(cls, environment: str) -> SettingValues:
        """The defaults of a task that differ from those of the algorithm."""
        found = (more for name, more in cls.tasks.items() if fnmatchcase(environment, name))
        return next(found, {})

    @property
    @abstractmethod
    def record_steps(self) -> int:
        """Steps of the environment in one record that an actor sends."""

    @abstractmethod
    def memory(self, dtype: np.dtype[np.void]) -> Memory:
        """An empty store of records between actors and learner."""

    @abstractmethod
    def limiter(self) -> RateLimiter:
        """The limiter that holds actors and learner to one pace."""

    @abstractmethod
    def exploration(self, actor: int, head: Head) -> Exploration:
        """How one of the actors chooses actions."""

    def check_observations(self, environment: Environment) -> None:
        """Raise UsageError for observations that the algorithm has no network for."""

    def cautions(self) -> list[str]:
        """Cautions for the user before a run begins; TensorFlow may be imported."""
        return []

    def prepare(self) -> None:
        """Called before a new run writes anything; TensorFlow may be imported. Raises QGraphError
        for what could only fail later.
        """

    def as_json(self) -> dict[str, object]:
        """The settings as JSON, for `options.json` and actor processes."""
        found: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return {"algorithm": self.algorithm, **found}
