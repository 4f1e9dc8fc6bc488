"""The settings of a config class, and the reading of their values.

The command line, the checks and the reading of `options.json` are derived from these fields.
"""

from __future__ import annotations

import numbers
import types
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields
from enum import Enum
from typing import Union, cast, get_args, get_origin, get_type_hints

from qgraph.errors import UsageError
from qgraph.rl.agents.setting import Setting
from qgraph.rl.setting_text import SettingText


@dataclass(frozen=True)
class DeclaredField:
    """A field of a config class. `kind` is the type of the value, or of each if it is `several`."""

    name: str
    setting: Setting
    kind: type
    several: bool
    optional: bool
    default: object

    def read(self, value: object) -> object:
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

    def _one(self, value: object) -> object:
        declared = self.setting
        if declared.choices:
            if value not in declared.choices or isinstance(value, bool):
                raise self._wrong(f"one of {', '.join(map(str, declared.choices))}", value)
            return declared.choices[declared.choices.index(value)]  # 8 for 8.0
        if issubclass(self.kind, Enum):
            try:
                return self.kind(value)
            except ValueError:
                legal = ", ".join(str(member.value) for member in self.kind)
                raise self._wrong(f"one of {legal}", value) from None
        wanted, words = KINDS[self.kind]
        if not isinstance(value, wanted) or (isinstance(value, bool) and self.kind is not bool):
            raise self._wrong(words, value)
        if declared.interval is not None and not declared.interval.holds(cast("float", value)):
            raise self._wrong(str(declared.interval), value)
        return cast("Callable[[object], object]", self.kind)(value)  # JSON has no numpy numbers

    def _number(self, text: str) -> int | str:
        if self.kind is not int:
            return text.strip()
        try:
            return int(text)
        except ValueError:
            raise self._wrong("a list of whole numbers like 256,256", text) from None

    def _wrong(self, wanted: str, value: object) -> UsageError:
        shown = value if isinstance(value, numbers.Real) else f"`{value}`"
        text = f"{{{self.name}}} must be {{wanted}}, not {{value}}"
        return UsageError(SettingText(text, wanted=wanted, value=shown))


KINDS: dict[type, tuple[type, str]] = {
    bool: (bool, "true or false"),
    str: (str, "text"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
}


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


def _declaration(kind: type, part: Field[object]) -> Setting | None:
    for base in kind.__mro__:
        known = vars(base).get("__dataclass_fields__", {}).get(part.name)
        found: Setting | None = known and known.metadata.get("setting")
        if found is not None:
            return found
    return None


def _kind(hint: object) -> tuple[type, bool, bool]:
    """The type of a value, whether there are several, and whether it may be None."""
    optional = get_origin(hint) in (Union, types.UnionType)
    if optional:
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    several = get_origin(hint) is tuple
    return cast("type", get_args(hint)[0] if several else hint), several, optional
