"""Messages between an environment in a separate process and its user; they travel as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.rl.environments.environment import Actions


@dataclass(frozen=True)
class Description:
    """The first answer. dtype: of an observation, as numpy writes it."""

    shape: tuple[int, ...]
    dtype: str
    actions: Actions


@dataclass(frozen=True)
class Request:
    """A request: `reset` with a seed or None, or `step` with an action, a number or a list."""

    what: str
    seed: int | None = None
    action: object = None


@dataclass(frozen=True)
class StepResult:
    """The answer to `step`, in front of the bytes of an observation."""

    reward: float
    discount: float
    over: bool
