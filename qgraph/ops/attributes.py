"""Attributes of an op: a frozen dataclass whose fields declare meanings and ranges."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import numpy as np

from qgraph.errors import GraphError
from qgraph.ops.attribute_types import Misfit, Reader, reader, type_hints, words


class Required(Enum):
    """Marks an attribute without a default."""

    REQUIRED = "required"


REQUIRED = Required.REQUIRED


@dataclass(frozen=True)
class Declaration:
    """Declaration of one attribute.

    meaning: text for the reference pages. low, high: the range of every number in it, inclusive;
    None for no limit. choices: all legal values, if there are few.
    """

    name: str
    meaning: str
    low: int | float | None = None
    high: int | float | None = None
    choices: tuple[object, ...] = ()
    default: object = REQUIRED

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def range(self) -> str:
        """A text like `same, valid`, `0 to 62` or `at least 1`; empty if any value is allowed."""
        if self.choices:
            return ", ".join(map(str, self.choices))
        if self.low is not None and self.high is not None:
            return f"{self.low} to {self.high}"
        if self.low is not None:
            return f"at least {self.low}"
        return "" if self.high is None else f"at most {self.high}"

    def holds(self, value: object) -> bool:
        """Whether the value, or each number in it, is in the range. None is always allowed."""
        if self.choices:
            return value in self.choices
        if type(value) is int:  # most values: skip the walk over numbers
            return self._in_range(value)
        return all(self._in_range(number) for number in _numbers(value))

    def _in_range(self, number: int | float | np.number) -> bool:
        low, high = self.low, self.high
        return bool((low is None or number >= low) and (high is None or number <= high))


def attribute(
    meaning: str,
    *,
    low: int | float | None = None,
    high: int | float | None = None,
    choices: tuple[object, ...] = (),
    default: object = REQUIRED,
) -> Any:
    """A dataclass field that is an attribute; see `Declaration`."""
    metadata = {"meaning": meaning, "low": low, "high": high, "choices": choices}
    if default is REQUIRED:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Attributes:
    """Base of the attributes of all ops, and the attributes of ops without any.

    Raises GraphError for a value outside the declared range of its field.
    """

    def __post_init__(self) -> None:
        key: Any = type(self)  # mypy finds no hash for the class of a dataclass
        for declared in _limited(key):
            value = getattr(self, declared.name)
            if not declared.holds(value):
                raise GraphError(
                    f"attribute `{declared.name}` is {value!r}", hint=f"legal: {declared.range}"
                )

    def items(self) -> Iterator[tuple[str, object]]:
        """Names and values, in the order of declaration."""
        for declared in declarations(type(self)):
            yield declared.name, getattr(self, declared.name)

    def given(self) -> dict[str, object]:
        """The attributes that differ from their defaults, and those without a default."""
        found = ((d, getattr(self, d.name)) for d in declarations(type(self)))
        return {d.name: value for d, value in found if d.required or value != d.default}


A = TypeVar("A", bound=Attributes)


def declarations(kind: type[Attributes]) -> tuple[Declaration, ...]:
    """The attributes that a class declares, in order."""
    key: Any = kind  # mypy finds no hash for the class of a dataclass
    return _declarations(key)


@cache
def _declarations(kind: Any) -> tuple[Declaration, ...]:
    return tuple(_declaration(part) for part in fields(kind))


@cache
def _limited(kind: Any) -> tuple[Declaration, ...]:
    """The attributes with a limited range."""
    return tuple(
        declared
        for declared in _declarations(kind)
        if declared.choices or declared.low is not None or declared.high is not None
    )


def _declaration(part: Field[object]) -> Declaration:
    default = REQUIRED if part.default is MISSING else part.default
    return Declaration(part.name, default=default, **part.metadata)


def attributes_of(kind: type[A], given: Mapping[str, object]) -> A:
    """An instance from values by name; lists become tuples and numpy's numbers Python's.

    Raises GraphError for an unknown attribute, a missing one, one of another type, and a value out
    of range.
    """
    key: Any = kind
    if not given:
        found: A = _without_any(key)
        return found
    form = _form(key)
    values = {}
    for name, value in given.items():
        if name not in form.readers:
            legal = ", ".join(form.readers) or "none"
            raise GraphError(f"unknown attribute `{name}`", hint=f"legal: {legal}")
        try:
            values[name] = form.readers[name](value)
        except Misfit:
            raise GraphError(
                f"attribute `{name}` is {reprlib.repr(value)}", hint=f"legal: {form.legal(name)}"
            ) from None
    _check_required(form, values)
    return kind(**values)


@cache
def _without_any(kind: Any) -> Any:
    _check_required(_form(kind), {})
    return kind()


def _check_required(form: _Form, values: Mapping[str, object]) -> None:
    for name in form.required:
        if name not in values:
            raise GraphError(f"attribute `{name}` is missing")


@dataclass(frozen=True)
class _Form:
    """How the attributes of a class are read."""

    kind: Any
    readers: Mapping[str, Reader]
    required: tuple[str, ...]

    def legal(self, name: str) -> str:
        (declared,) = (d for d in declarations(self.kind) if d.name == name)
        return declared.range if declared.choices else words(type_hints(self.kind)[name])


@cache
def _form(kind: Any) -> _Form:
    declared, hints = declarations(kind), type_hints(kind)
    required = tuple(d.name for d in declared if d.required)
    return _Form(kind, {d.name: reader(hints[d.name]) for d in declared}, required)


def attributes_for(kind: type[A], given: Attributes | Mapping[str, object]) -> A:
    """Attributes of a class, given as an instance or as values by name. Raises GraphError."""
    if isinstance(given, Mapping):
        return attributes_of(kind, given)
    if type(given) is not kind:
        raise GraphError(f"attributes are {type(given).__name__}, not {kind.__name__}")
    return given


def _numbers(value: object) -> Iterator[int | float | np.number]:
    if isinstance(value, tuple | list):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, int | float | np.number) and not isinstance(value, bool):
        yield value
