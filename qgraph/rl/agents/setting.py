"""Declarations of settings: each is a dataclass field with its meaning, range and unit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from qgraph.enums import StrEnum

T = TypeVar("T")
SettingValues: TypeAlias = Mapping[str, Any]  # by name, as given: a config checks them


@dataclass(frozen=True)
class Interval:
    """The range of a number, with both ends unless `open_low`. NaN and infinity are outside."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False

    def holds(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        return math.isfinite(value) and above and value <= self.high

    def __str__(self) -> str:
        """Like `in (0, 1]`, `at least 1` or `a finite number above 0`."""
        if math.isfinite(self.high):
            return f"in {'(' if self.open_low else '['}{self.low:g}, {self.high:g}]"
        return f"a finite number above {self.low:g}" if self.open_low else f"at least {self.low:g}"


POSITIVE, NOT_NEGATIVE, AT_LEAST_ONE = Interval(0, open_low=True), Interval(0), Interval(1)
SHARE, POSITIVE_SHARE = Interval(0, 1), Interval(0, 1, open_low=True)


class Panel(StrEnum):
    """Groups of options, in the order of the command line's help, and the settings in each."""

    RUN = "Run"
    ACTORS = "Actors"
    LEARNING = "Learning"
    EXPLORATION = "Exploration"
    REPLAY = "Replay"
    ALGORITHM = ""  # named by the algorithms that have the option
    BITS = "Training in few bits"
    COMPRESSION = "Compression"

    def setting(
        self,
        default: T,
        help: str,
        interval: Interval | None = None,
        *,
        unit: str = "",
        flags: str = "",
        former_name: str = "",
        default_text: str = "",
    ) -> T:
        """A dataclass field; see `Setting` for the parameters."""
        declared = Setting(help, interval, unit, (), self, flags, former_name, default_text)
        return declared.field(default)

    def number_of(self, unit: str, default: T, help: str, *, former_name: str = "") -> T:
        """A dataclass field for a number of things, 1 or more: `number_of("steps", 100, ...)`."""
        return self.setting(default, help, AT_LEAST_ONE, unit=unit, former_name=former_name)


@dataclass(frozen=True)
class Setting:
    """The declaration of a field.

    help          a sentence, for the command line
    interval      the range of the number, or of each number in a tuple
    unit          what a number counts, like `learner steps`
    choices       all legal values, where they are few
    panel         the group of options that it is listed in
    flags         the option, if it is not --NAME or --NAME/--no-NAME
    former_name   its former name, which options, scripts and run directories may still use
    default_text  the default in words, if the value is not clear
    """

    help: str
    interval: Interval | None = None
    unit: str = ""
    choices: tuple[object, ...] = ()
    panel: Panel = Panel.ALGORITHM
    flags: str = ""
    former_name: str = ""
    default_text: str = ""

    def field(self, default: T) -> T:
        """A dataclass field with this declaration."""
        return field(default=default, metadata={"setting": self})
