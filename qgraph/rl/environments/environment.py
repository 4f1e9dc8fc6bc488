"""The interface of environments."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from qgraph.distribution import install_hint
from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.rl.head import Head

Action = Array | np.generic | int  # what a policy sends: numbers, or which of several


@dataclass(frozen=True)
class Actions:
    """The actions of an environment: one of `count`, or numbers within low..high (count 0)."""

    count: int = 0
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def discrete(self) -> bool:
        return self.count > 0

    def check(self, head: Head, outputs: int) -> None:
        """Raises UsageError where a head with so many outputs does not make such actions."""
        if head.discrete != self.discrete:
            kinds = ("numbers", "one of several")
            raise UsageError(
                f"a `{head.kind}` head chooses {kinds[head.discrete]}, "
                f"but the environment takes {kinds[self.discrete]}",
                hint="another head, or another environment",
            )
        wanted = self.count or len(self.low) * (1 + (head.kind == "squashed_gaussian"))
        if outputs != wanted:
            raise UsageError(f"the policy has {outputs} outputs, the environment takes {wanted}")


@dataclass(frozen=True)
class Outcome:
    """The result of a step. `discount` is 0 where the episode ended for good; `over`: it ended."""

    observation: Array
    reward: float
    discount: float
    over: bool


class Environment(Protocol):
    """`shape` and `dtype` are of one observation: float32, or uint8 for images."""

    shape: tuple[int, ...]
    dtype: Any
    actions: Actions

    def reset(self, seed: int | None = None) -> Array: ...

    def step(self, action: Action) -> Outcome: ...

    def close(self) -> None: ...


def floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def unknown(name: str, known: list[str], told: str = "") -> UsageError:
    """That there is none of this name, and which ones are like it."""
    near = difflib.get_close_matches(name, known, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "dm_control tasks: dm_control:a-b"
    return UsageError(f"no environment is called `{name}`{told and f': {told}'}", hint=hint)


def imported(module: str, extra: str | None = None) -> Any:
    """A module of another package, of an extra if one is named. Raises UsageError."""
    package = module.partition(".")[0].replace("_", "-")
    try:
        return importlib.import_module(module)
    except ImportError as error:
        hint = install_hint(package, extra=extra)
        raise UsageError(f"{package} is missing ({error})", hint=hint) from None
