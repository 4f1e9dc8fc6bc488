"""The config of a training run: the base of every algorithm's."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from qgraph.errors import UsageError
from qgraph.rl.agents.compression_settings import CompressionSettings
from qgraph.rl.agents.setting import SettingValues
from qgraph.rl.setting_text import SettingText

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
    """Settings of a training run; the base of the config of each algorithm.

    Unset fields take the defaults of the algorithm. `RunConfig.fields()` describes all settings, as
    does `qgraph rl train --algo NAME --help`.

    Attributes:
        environment: Name of the environment.
        algorithm: Name of the algorithm.
        discrete_actions: Whether the algorithm can choose discrete actions.
        continuous_actions: Whether the algorithm can choose continuous actions.
        images: Whether the algorithm can learn from images. All can learn from vectors.
        image_size: The smallest height and width of images, which the convolutions need.
        tasks: Settings of tasks that differ from the defaults, by name of the environment or by a
            pattern of names. `for_task` applies them.

    Examples:
        >>> from qgraph.rl.agents import config_for
        >>> config = config_for("dqn", "CartPole-v1", actors=4)
        >>> config.actors, config.batch_size
        (4, 128)
    """

    algorithm: ClassVar[str]
    discrete_actions: ClassVar[bool] = False
    continuous_actions: ClassVar[bool] = False
    images: ClassVar[bool] = False
    image_size: ClassVar[int] = 3
    tasks: ClassVar[Mapping[str, SettingValues]] = MappingProxyType({})

    @classmethod
    def for_task(cls: type[C], environment: str, **settings: Any) -> C:
        """Create the config of a task.

        Args:
            environment: Name of the environment.
            settings: Settings by name. Others take the defaults of the task.

        Returns:
            The config.

        Raises:
            UsageError: A value is out of range, or settings exclude each other.
        """
        return cls(environment, **{**cls.task_settings(environment), **settings})

    @classmethod
    def task_settings(cls, environment: str) -> SettingValues:
        """Get the defaults of a task that differ from those of the algorithm.

        Args:
            environment: Name of the environment.

        Returns:
            Settings by name.
        """
        found = (more for name, more in cls.tasks.items() if fnmatchcase(environment, name))
        return next(found, {})

    @property
    def state_size(self) -> int:
        """Numbers in the states of a recurrent policy; 0 for others."""
        return 0

    @property
    @abstractmethod
    def record_steps(self) -> int:
        """Steps of the environment in one record that an actor sends."""

    def needed_version(self, steps: int) -> int:
        """Compute which policy an actor waits for before its next step.

        Args:
            steps: Steps that the actor has taken since the run was started or resumed.

        Returns:
            How many policies the learner must have made since then; 0 if the actor does not wait.
        """
        return 0

    @abstractmethod
    def memory(self, dtype: np.dtype[np.void]) -> Memory:
        """Create an empty store of records between actors and learner.

        Args:
            dtype: Structured type of a record.

        Returns:
            The store, such as a replay.
        """

    @abstractmethod
    def limiter(self) -> RateLimiter:
        """Create the limiter that keeps actors and learner at the same pace.

        Returns:
            The limiter.
        """

    @abstractmethod
    def exploration(self, actor: int, head: Head) -> Exploration:
        """Create the exploration of one actor.

        Args:
            actor: Number of the actor, from 0.
            head: Head of the policy.

        Returns:
            An object that chooses actions.
        """

    def check_observations(self, environment: Environment) -> None:
        """Check that the algorithm has a network for the observations.

        Args:
            environment: The environment.

        Raises:
            UsageError: The algorithm has none.
        """
        shape, size = environment.shape, self.image_size
        if self.train_bits is not None and len(shape) != 1:
            raise UsageError(
                SettingText("{train_bits} is for vectors; `{name}` gives {shape}",
                            name=self.environment, shape=list(shape)),
                hint=SettingText("leave {train_bits} out, and quantize the trained policy"),
            )  # fmt: skip
        images = self.images and len(shape) == 3 and min(shape[:2]) >= size
        if len(shape) != 1 and not images:
            kinds = "vectors"
            if self.images:
                kinds += f", or images of {size} x {size} and more with channels"
            raise UsageError(
                f"{self.title} takes {kinds}; `{self.environment}` gives {list(shape)}"
            )

    def warnings(self) -> list[str]:
        """Find reasons to warn the user before a run starts. It may import TensorFlow.

        Returns:
            Warnings, one sentence each.
        """
        return []

    def prepare(self) -> None:
        """Check what would otherwise fail later. It is called before a new run writes anything.

        It may import TensorFlow.

        Raises:
            QGraphError: The run cannot work.
        """

    def as_json(self) -> dict[str, object]:
        """Convert the settings to JSON, for `options.json` and for actor processes.

        Returns:
            Settings by name, and `algorithm`.
        """
        found: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return {"algorithm": self.algorithm, **found}
