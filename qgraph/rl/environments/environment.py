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
    """The actions of an environment: one of `count`, or numbers within low..high (count 0)."""

    count: int = 0
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def discrete(self) -> bool:
        return self.count > 0

    def check(self, head: Head, outputs: int) -> None:
        """Raise UsageError if a head with `outputs` outputs does not make such actions."""
        if head.discrete != self.discrete:
            kinds = ("numbers", "one of several")
            raise UsageError(
                f"a `{head.kind}` head chooses {kinds[head.discrete]}, "
                f"but the environment takes {kinds[self.discrete]}",
                hint="choose another head or another environment",
            )
        wanted = self.count or len(self.low) * (1 + (head.kind == "squashed_gaussian"))
        if outputs != wanted:
            raise UsageError(f"the policy has {outputs} outputs, the environment takes {wanted}")


@dataclass(frozen=True)
class Outcome:
    """The result of a step. discount: 0 after a terminal state. over: the episode has ended."""

    observation: Array
    reward: float
    discount: float
    over: bool


class Environment(Protocol):
    """The interface. shape, dtype: of one observation; dtype is float32, or uint8 for images."""

    shape: tuple[int, ...]
    actions: Actions

    @property
    def dtype(self) -> np.dtype[np.generic]: ...

    def reset(self, seed: int | None = None) -> Array: ...

    def step(self, action: Action) -> Outcome: ...

    def close(self) -> None: ...


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
