"""Types of keys: the values of an option in plain data and in Python, and their limits."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, TypeVar

from qgraph.records import JSON, OMITTED

T = TypeVar("T")
C = TypeVar("C", bound=str)


class KeyMisfit(ValueError):
    """A value that a key does not accept; the message describes what the key expects."""


@dataclass(frozen=True)
class TypeFacts:
    """The type of a key and its limits, for JSON; `null` is the meaning of null."""

    type: str
    null: str | None = field(default=None, metadata=OMITTED)
    choices: tuple[str | bool, ...] | None = field(default=None, metadata=OMITTED)
    range: tuple[float, float | None] | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class KeyType(ABC, Generic[T]):
    """The values that a key accepts, in plain data (YAML, JSON) and in Python, where they are `T`.

    `unset` is the meaning of None; it is empty for a key that does not accept None in plain data.
    """

    word: ClassVar[str]  # the type, as documentation calls it
    unset: str = field(default="", kw_only=True)

    @property
    @abstractmethod
    def expected(self) -> str:
        """The end of the sentence "`key` must be ..."."""

    @property
    def usage(self) -> str:
        """The accepted values, for a table."""
        return f"{self.expected}, or null" if self.unset else self.expected

    @property
    def facts(self) -> TypeFacts:
        return TypeFacts(self.word, self.unset or None)

    @abstractmethod
    def read(self, value: object, path: str = "") -> T:
        """Read the value of the field at `path` from plain data, not None. Raises KeyMisfit."""

    def checked(self, value: object) -> T:
        """Check a value in Python, not None, and convert it. Raises KeyMisfit."""
        return self.read(value)

    @abstractmethod
    def write(self, value: T) -> JSON:
        """Convert `value` to plain data that `read` converts back."""


@dataclass(frozen=True)
class TextType(KeyType[str]):
    """Any text; `example` appears in the error for a required key that is missing."""

    word = expected = "text"
    example: str = "text"

    def read(self, value: object, path: str = "") -> str:
        if not isinstance(value, str):
            raise KeyMisfit(self.expected)
        return value

    def write(self, value: str) -> JSON:
        return value


@dataclass(frozen=True)
class SwitchType(KeyType[bool]):
    """A bool; in plain data either a bool or one of the words for false and true."""

    word = "switch"
    words: tuple[str, str] | None = None

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.words)}" if self.words else "true or false"

    @property
    def facts(self) -> TypeFacts:
        return replace(super().facts, choices=self.words or (False, True))

    def read(self, value: object, path: str = "") -> bool:
        if self.words and isinstance(value, str) and value in self.words:
            return value == self.words[True]
        if self.words:
            raise KeyMisfit(self.expected)
        return self.checked(value)

    def checked(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise KeyMisfit("true or false")
        return value

    def write(self, value: bool) -> JSON:
        return self.words[value] if self.words else value


@dataclass(frozen=True)
class RangedType(KeyType[T]):
    """Whole numbers from `low` to `high`."""

    low: int
    high: int

    @property
    def facts(self) -> TypeFacts:
        return replace(super().facts, range=(self.low, self.high))


@dataclass(frozen=True)
class WholeType(RangedType[int]):
    """A whole number."""

    word = "whole number"

    @property
    def expected(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def read(self, value: object, path: str = "") -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise KeyMisfit(self.expected)
        if not self.low <= value <= self.high:
            raise KeyMisfit(self.expected)
        return int(value)

    def write(self, value: int) -> JSON:
        return value


@dataclass(frozen=True)
class NumberType(KeyType[float]):
    """A finite number, at least `low`."""

    word = "number"
    low: float

    @property
    def expected(self) -> str:
        return f"a finite number, at least {self.low:g}"

    @property
    def facts(self) -> TypeFacts:
        return replace(super().facts, range=(self.low, None))

    def read(self, value: object, path: str = "") -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise KeyMisfit(self.expected)
        if not math.isfinite(value) or value < self.low:
            raise KeyMisfit(self.expected)
        return float(value)

    def write(self, value: float) -> JSON:
        return value


@dataclass(frozen=True)
class ChoiceType(KeyType[C]):
    """One of several texts; `read` returns the element of `choices`, a member of an enumeration."""

    word = "choice"
    choices: tuple[C, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(map(str, self.choices))}"

    @property
    def facts(self) -> TypeFacts:
        return replace(super().facts, choices=tuple(map(str, self.choices)))

    def read(self, value: object, path: str = "") -> C:
        for choice in self.choices:
            if isinstance(value, str) and value == choice:
                return choice
        raise KeyMisfit(self.expected)

    def write(self, value: C) -> JSON:
        return str(value)


@dataclass(frozen=True)
class SpanType(RangedType[tuple[int, int]]):
    """Two whole numbers in ascending order."""

    word = "two whole numbers"

    @property
    def expected(self) -> str:
        return f"two numbers, [least, most], from {self.low} to {self.high}"

    def read(self, value: object, path: str = "") -> tuple[int, int]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise KeyMisfit(self.expected)
        least, most = (WholeType(self.low, self.high).read(v) for v in value)
        if least > most:
            raise KeyMisfit("[least, most] in ascending order")
        return least, most

    def write(self, value: tuple[int, int]) -> JSON:
        return list(value)
