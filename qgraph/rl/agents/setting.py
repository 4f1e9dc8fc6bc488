"""Settings of a training run: each is a dataclass field with its meaning, range and unit.

The command line, the checks and the reading of `options.json` are derived from these fields.
"""

from __future__ import annotations

import math
import numbers
import types
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from qgraph.errors import UsageError


class SettingText(str):
    """Text that names settings: `SettingText("{discount} is {value}", value=2)`.

    As a string it has the names of fields. `spelled` gives it with other names, such as flags.
    """

    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, **values: Any) -> SettingText:
        made = super().__new__(cls, template.format_map(_Spelled(values, str)))
        made.template, made.values = template, values
        return made

    def spelled(self, spell: Callable[[str], str]) -> str:
        return self.template.format_map(_Spelled(self.values, spell))


class _Spelled(dict[str, Any]):
    """Values by name; any other name stands for a setting."""

    def __init__(self, values: dict[str, Any], spell: Callable[[str], str]) -> None:
        super().__init__(values)
        self.spell = spell

    def __missing__(self, name: str) -> str:
        return self.spell(name)


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


@dataclass(frozen=True)
class Setting:
    """The declaration of a field.

    help         a sentence, for the command line
    interval     the range of the number, or of each number in a tuple
    unit         what a number counts, like `learner steps`
    choices      all legal values, where they are few
    panel        the group of options that it is listed in; "" is that of its algorithm
    flags        how the option is written, where that is not --NAME or --NAME/--no-NAME
    earlier      the name that it had before; options, scripts and run directories may still use it
    default_text the default in words, where the value would not explain itself
    """

    help: str
    interval: Interval | None = None
    unit: str = ""
    choices: tuple[Any, ...] = ()
    panel: str = ""
    flags: str = ""
    earlier: str = ""
    default_text: str = ""


@dataclass(frozen=True)
class DeclaredField:
    """A field of a config class. `kind` is the type of the value, or of each if it is `several`."""

    name: str
    setting: Setting
    kind: type
    several: bool
    optional: bool
    default: Any

    def read(self, value: Any) -> Any:
        """The value, checked; text becomes a member of an enum or a tuple. Raises UsageError."""
        if value is None and self.optional:
            return None
        if not self.several:
            return self._one(value)
        if isinstance(value, str):
            value = [self._number(part) for part in value.split(",") if part.strip()]
        if not isinstance(value, tuple | list):
            raise self._wrong("a list", value)
        return tuple(self._one(each) for each in value)

    def _one(self, value: Any) -> Any:
        declared = self.setting
        if declared.choices:
            if value not in declared.choices or isinstance(value, bool):
                raise self._wrong(f"one of {', '.join(map(str, declared.choices))}", value)
            return value
        if issubclass(self.kind, Enum):
            try:
                return self.kind(value)
            except ValueError:
                legal = ", ".join(str(member.value) for member in self.kind)
                raise self._wrong(f"one of {legal}", value) from None
        wanted, words = KINDS[self.kind]
        if not isinstance(value, wanted) or (isinstance(value, bool) and self.kind is not bool):
            raise self._wrong(words, value)
        if declared.interval is not None and not declared.interval.holds(value):
            raise self._wrong(str(declared.interval), value)
        return value

    def _number(self, text: str) -> Any:
        if self.kind is not int:
            return text.strip()
        try:
            return int(text)
        except ValueError:
            raise self._wrong("a list of whole numbers like 256,256", text) from None

    def _wrong(self, wanted: str, value: Any) -> UsageError:
        shown = value if isinstance(value, numbers.Real) else f"`{value}`"
        text = f"{{{self.name}}} must be {{wanted}}, not {{value}}"
        return UsageError(SettingText(text, wanted=wanted, value=shown))


KINDS: dict[type, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    str: (str, "text"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
}


def setting(
    default: Any, declared: Setting | str, interval: Interval | None = None, **more: Any
) -> Any:
    """A dataclass field that is a setting.

    `declared` is its help, and `interval` and `more` as `Setting` has them; or all of it, for a
    setting that several algorithms share.
    """
    if isinstance(declared, str):
        declared = Setting(declared, interval, **more)
    return field(default=default, metadata={"setting": declared})


def declared_fields(kind: type) -> Iterator[DeclaredField]:
    """The settings of a config class, in order.

    A subclass that gives a field another default may leave the declaration to its base.
    """
    hints = get_type_hints(kind)
    for part in fields(kind):
        declared = _declaration(kind, part)
        if declared is not None:
            default = None if part.default is MISSING else part.default
            yield DeclaredField(part.name, declared, *_kind(hints[part.name]), default)


def _declaration(kind: type, part: Field[Any]) -> Setting | None:
    for base in kind.__mro__:
        known = vars(base).get("__dataclass_fields__", {}).get(part.name)
        found: Setting | None = known and known.metadata.get("setting")
        if found is not None:
            return found
    return None


def _kind(hint: Any) -> tuple[type, bool, bool]:
    """The type of a value, whether there are several, and whether it may be None."""
    optional = get_origin(hint) in (Union, types.UnionType)
    if optional:
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    several = get_origin(hint) is tuple
    return (get_args(hint)[0] if several else hint), several, optional
