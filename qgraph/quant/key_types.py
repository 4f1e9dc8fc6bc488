"""Types of keys: the values that an option takes in plain data and in Python, and their limits."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar


class KeyMisfit(ValueError):
    """A value that a key does not take; the message is what the key expects."""


@dataclass(frozen=True)
class KeyType(ABC):
    """The values that a key takes, in plain data (YAML, JSON) and in Python.

    `unset` is the meaning of None, "" for a key that does not take None in plain data.
    """

    word: ClassVar[str]  # the type, as documentation calls it
    unset: str = field(default="", kw_only=True)

    @property
    @abstractmethod
    def expected(self) -> str:
        """Ends the sentence "`key` must be ..."."""

    @property
    def usage(self) -> str:
        """The values, as in a table."""
        return f"{self.expected}, or null" if self.unset else self.expected

    @property
    def facts(self) -> dict[str, Any]:
        """The type and its limits, for JSON."""
        return {"type": self.word, **({"null": self.unset} if self.unset else {})}

    @abstractmethod
    def read(self, value: Any, path: str = "") -> Any:
        """The value of the field at `path`, from plain data other than None. Raises Misfit."""

    def checked(self, value: Any) -> Any:
        """The value of the field from a value in Python other than None. Raises Misfit."""
        return self.read(value)

    def write(self, value: Any) -> Any:
        """Plain data that `read` reads back as `value`."""
        return value


@dataclass(frozen=True)
class TextType(KeyType):
    """Any text; `example` is what an error asks for where the key is required and missing."""

    word = "text"
    example: str = "text"

    @property
    def expected(self) -> str:
        return "text"

    def read(self, value: Any, path: str = "") -> str:
        if not isinstance(value, str):
            raise KeyMisfit(self.expected)
        return value


@dataclass(frozen=True)
class SwitchType(KeyType):
    """A bool, in plain data too unless it has words there: (word of false, word of true)."""

    word = "switch"
    words: tuple[str, str] | None = None

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.words)}" if self.words else "true or false"

    @property
    def facts(self) -> dict[str, Any]:
        return {**super().facts, "choices": list(self.words or (False, True))}

    def read(self, value: Any, path: str = "") -> bool:
        if self.words and isinstance(value, str) and value in self.words:
            return value == self.words[True]
        if self.words:
            raise KeyMisfit(self.expected)
        return self.checked(value)

    def checked(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise KeyMisfit("true or false")
        return value

    def write(self, value: bool) -> Any:
        return self.words[value] if self.words else value


@dataclass(frozen=True)
class WholeType(KeyType):
    """A whole number from `low` to `high`."""

    word = "whole number"
    low: int
    high: int

    @property
    def expected(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    @property
    def facts(self) -> dict[str, Any]:
        return {**super().facts, "range": [self.low, self.high]}

    def read(self, value: Any, path: str = "") -> int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not self.low <= value <= self.high:
            raise KeyMisfit(self.expected)
        return int(value)


@dataclass(frozen=True)
class NumberType(KeyType):
    """A finite number, at least `low`."""

    word = "number"
    low: float

    @property
    def expected(self) -> str:
        return f"a finite number, at least {self.low:g}"

    @property
    def facts(self) -> dict[str, Any]:
        return {**super().facts, "range": [self.low, None]}

    def read(self, value: Any, path: str = "") -> float:
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or not math.isfinite(value) or value < self.low:
            raise KeyMisfit(self.expected)
        return float(value)


@dataclass(frozen=True)
class ChoiceType(KeyType):
    """One of several texts; what is read is the element of `choices`, an enumeration's member."""

    word = "choice"
    choices: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(map(str, self.choices))}"

    @property
    def facts(self) -> dict[str, Any]:
        return {**super().facts, "choices": list(map(str, self.choices))}

    def read(self, value: Any, path: str = "") -> str:
        for choice in self.choices:
            if isinstance(value, str) and value == choice:
                return choice
        raise KeyMisfit(self.expected)

    def write(self, value: Any) -> Any:
        return None if value is None else str(value)


@dataclass(frozen=True)
class SpanType(KeyType):
    """Two whole numbers from `low` to `high`, in rising order."""

    word = "two whole numbers"
    low: int
    high: int

    @property
    def expected(self) -> str:
        return f"two numbers, [least, most], from {self.low} to {self.high}"

    @property
    def facts(self) -> dict[str, Any]:
        return {**super().facts, "range": [self.low, self.high]}

    def read(self, value: Any, path: str = "") -> tuple[int, int]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise KeyMisfit(self.expected)
        least, most = (WholeType(self.low, self.high).read(v) for v in value)
        if least > most:
            raise KeyMisfit("[least, most] in rising order")
        return least, most

    def write(self, value: tuple[int, int]) -> list[int]:
        return list(value)
