"""Settings of a run as a whole, and the base of all settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from qgraph.rl.agents.declared_field import DeclaredField, declared_fields
from qgraph.rl.agents.setting import Interval, Panel

SEEDS = Interval(0, 2**63 - 1)  # TensorFlow's random numbers take seeds of int64


@dataclass(frozen=True)
class RunSettings:
    """The environment, the length of a run, its evaluations and its seed.

    Values are read as their fields declare, then `check` is called. Raises UsageError for a value
    out of range, and for settings that do not go together.
    """

    environment: str
    steps: int = Panel.RUN.number_of(
        "steps", 40_000, "Total number of environment steps, over all actors."
    )
    evaluate_every: int = Panel.RUN.number_of(
        "learner steps", 1000, "Learner steps between evaluations of the full-precision policy."
    )
    episodes: int = Panel.RUN.number_of("episodes", 10, "Episodes per evaluation.")
    energy: bool = Panel.RUN.setting(
        False, "Estimate the energy and the emissions of the run, with codecarbon."
    )
    country: str = Panel.RUN.setting(
        "USA",
        "Country whose electricity decides the emissions: an ISO code of three letters.",
        unit="code",
    )
    seed: int = Panel.RUN.setting(0, "Seed of the run.", SEEDS)

    @classmethod
    def fields(cls) -> Mapping[str, DeclaredField]:
        """The settings by name."""
        kind: type = cls
        return _fields_of(kind)

    def __post_init__(self) -> None:
        for name, each in self.fields().items():
            object.__setattr__(self, name, each.read(getattr(self, name)))
        self.check()

    def check(self) -> None:
        """Raise UsageError for settings that do not go together."""


@cache
def _fields_of(kind: type) -> Mapping[str, DeclaredField]:
    return MappingProxyType({each.name: each for each in declared_fields(kind)})
