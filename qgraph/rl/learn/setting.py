"""One setting of a run: its default, meaning, range and option, declared where the field is."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from qgraph.errors import UsageError


@dataclass(frozen=True)
class Within:
    """The values that a number may have; `above` and `below` are ends that do not belong to it."""

    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf

    def holds(self, value: float) -> bool:
        return math.isfinite(value) and self.low <= value <= self.high and value > self.above

    def __str__(self) -> str:
        """Like `0 to 1`, `at least 1` or `a finite number above 0`."""
        above = math.isfinite(self.above)
        if math.isfinite(self.high):
            return (
                f"above {self.above:g}, to {self.high:g}"
                if above
                else f"{self.low:g} to {self.high:g}"
            )
        if above:
            return f"a finite number above {self.above:g}"
        return f"at least {self.low:g}" if math.isfinite(self.low) else "a finite number"


POSITIVE, SHARE, NOT_NEGATIVE = Within(above=0), Within(0, 1), Within(0)
AT_LEAST_ONE = Within(1)


@dataclass(frozen=True)
class Setting:
    """What is declared of a field.

    text: the help of its option. within: the range of a number, or of each one of a tuple. choices:
    all values there are. takers: the algorithms that look at it; all where there are none. flags:
    how the option is written, `--NAME` by default, "" for a field without one. parameter: the
    name of its parameter, where that is not the field's. said: what errors call it, where that is
    not the option. usual: the default that is shown.
    """

    text: str
    within: Within | None = None
    choices: tuple[Any, ...] = ()
    takers: tuple[str, ...] = ()
    flags: str | None = None
    parameter: str = ""
    said: str = ""
    metavar: str = ""
    usual: str = ""
    panel: str = ""

    def option(self, name: str) -> str:
        """How a user writes it."""
        return f"--{name.replace('_', '-')}" if self.flags is None else self.flags or name


def setting(default: Any, text: str, within: Within | None = None, **more: Any) -> Any:
    """A dataclass field that is a setting; `more` is as `Setting` has it."""
    return field(default=default, metadata={"setting": Setting(text, within, **more)})


def settings_of(kind: type) -> Iterator[tuple[str, Any, Setting]]:
    """Name, default and declaration of each setting."""
    for part in fields(kind):
        found = part.metadata.get("setting")
        if found is not None:
            yield part.name, part.default, found


def check_value(name: str, value: Any, default: Any, declared: Setting) -> None:
    """Raises UsageError for a value of another type than the default, or out of range."""
    option = declared.option(name).partition("/")[0]
    if value is None and (default is None or None in declared.choices):
        return
    if declared.choices:
        if value not in declared.choices or isinstance(value, bool):
            known = ", ".join(str(choice) for choice in declared.choices if choice is not None)
            raise UsageError(f"{option} is {value}", hint=f"choose one of {known}")
        return
    several = isinstance(default, tuple)
    if several and not isinstance(value, tuple | list):
        raise UsageError(f"{option} is {value!r}, but has to be a list")
    kind = _kind(default, declared)
    for one in value if several else (value,):
        fits = isinstance(one, kind) and (kind is bool or not isinstance(one, bool))
        if not fits:
            raise UsageError(f"{option} is {one!r}", hint=f"it has to be {WORDS[kind]}")
        if declared.within is not None and not declared.within.holds(one):
            raise UsageError(f"{option} is {one}", hint=f"it has to be {declared.within}")


WORDS = {
    bool: "true or false",
    str: "text",
    numbers.Integral: "a whole number",
    numbers.Real: "a number",
}


def _kind(default: Any, declared: Setting) -> Any:
    """The type that a value, or each one of a tuple, has to have."""
    if isinstance(default, bool | str):
        return type(default)
    if isinstance(default, tuple):
        return numbers.Integral if declared.within is not None else str
    return numbers.Real if isinstance(default, float) else numbers.Integral
