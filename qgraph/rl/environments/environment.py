"""The interface of environments."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, SupportsFloat

import numpy as np

from qgraph.distribution import install_hint
from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.rl.head import Head

Action = Array | np.generic | int  # numbers, or the number of one of several actions


@dataclass(frozen=True)
class Actions:
    """The actions of an environment: one of `count`, several choices, or a vector of numbers.

    Attributes:
        count: Number of discrete actions; 0 for others.
        low: Lower bound of each number of a continuous action.
        high: Upper bound of each number.
        choices: Number of options of each choice, of an action that is several choices.

    Examples:
        >>> from qgraph.rl.environments import Actions
        >>> Actions(count=2).discrete, Actions(low=(-1.0,), high=(1.0,)).discrete
        (True, False)
    """

    count: int = 0
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    choices: tuple[int, ...] = ()

    @property
    def discrete(self) -> bool:
        """Whether an action is one of `count`."""
        return self.count > 0

    @property
    def composite(self) -> bool:
        """Whether an action is several choices."""
        return len(self.choices) > 0

    def check(self, head: Head, outputs: int) -> None:
        """Check that a policy chooses such actions.

        Args:
            head: Head of the policy.
            outputs: Number of outputs in front of the head.

        Raises:
            UsageError: The policy chooses other actions.
        """
        if (head.discrete, head.choices) != (self.discrete, self.choices):
            raise UsageError(
                f"a `{head.kind}` head chooses {_kind(head.discrete, head.choices)}, "
                f"but the environment takes {_kind(self.discrete, self.choices)}",
                hint="choose another head or another environment",
            )
        wanted = self.count or head.outputs_for(len(self.low))
        if outputs != wanted:
            raise UsageError(f"the policy has {outputs} outputs, the environment takes {wanted}")


@dataclass(frozen=True)
class Outcome:
    """The result of a step.

    Attributes:
        observation: The next observation, of the shape and dtype of the environment.
        reward: The reward.
        discount: 0 after a terminal state, else 1.
        over: Whether the episode has ended.

    Examples:
        >>> import numpy as np
        >>> from qgraph.rl.environments import Outcome
        >>> Outcome(np.zeros(4, np.float32), reward=1.0, discount=1.0, over=False).over
        False
    """

    observation: Array
    reward: float
    discount: float
    over: bool


class Environment(Protocol):
    """Interface of environments.

    Attributes:
        shape: Shape of one observation.
        actions: The actions.

    Examples:
        >>> from qgraph.rl.environments import Environment
        >>> def steps_of_an_episode(environment: Environment) -> int:
        ...     environment.reset(seed=0)
        ...     steps = 1
        ...     while not environment.step(0).over:
        ...         steps += 1
        ...     return steps
    """

    shape: tuple[int, ...]
    actions: Actions

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Type of observations: float32, or uint8 for images."""

    def reset(self, seed: int | None = None) -> Array:
        """Start an episode.

        Args:
            seed: Seed of the environment; None continues its random numbers.

        Returns:
            The first observation.
        """

    def step(self, action: Action) -> Outcome:
        """Take an action.

        Args:
            action: The number of a discrete action, or an array of numbers.

        Returns:
            The next observation, the reward, and whether the episode has ended.
        """

    def close(self) -> None:
        """Release the environment."""


def _kind(discrete: bool, choices: tuple[int, ...]) -> str:
    """Words for a kind of actions."""
    if choices:
        return f"choices of {', '.join(map(str, choices))} options"
    return "one of several" if discrete else "numbers"


def floats(values: Iterable[SupportsFloat]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def unknown(name: str, known: list[str], why: str = "") -> UsageError:
    """The error for an unknown environment, with similar names."""
    near = difflib.get_close_matches(name, known, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "dm_control tasks: dm_control:a-b"
    return UsageError(f"unknown environment `{name}`{why and f': {why}'}", hint=hint)


def imported(module: str, extra: str | None = None) -> ModuleType:
    """A module of another package, of an extra if one is named. Raises UsageError."""
    package = module.partition(".")[0].replace("_", "-")
    try:
        return importlib.import_module(module)
    except ImportError as error:
        hint = install_hint(package, extra=extra)
        raise UsageError(f"{package} is missing ({error})", hint=hint) from None
