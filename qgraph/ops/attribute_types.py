"""Types of attributes: how values are read, and how reference pages name the types."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

Reader = Callable[[object], object]
Pair = tuple[int, int]
Pads = tuple[Pair, Pair]

_WORDS: Mapping[object, str] = {
    int: "an integer",
    float: "a number",
    bool: "True or False",
    str: "a text",
    type(None): "None",
    tuple[int, ...]: "a list of integers",
    tuple[int | None, ...]: "a list of integers or None",
    tuple[Pair, ...]: "a list of pairs of integers",
    Pair: "(of height, of width)",
    Pads: "((top, bottom), (left, right))",
}


class Misfit(Exception):
    """A value does not have the expected type."""


def is_union(hint: object) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


@cache
def type_hints(kind: Any) -> Mapping[str, Any]:
    """The types of the attributes of a class, by name."""
    return get_type_hints(kind)


def words(hint: object) -> str:
    """A type in words."""
    if is_union(hint):
        return " or ".join(map(words, get_args(hint)))
    if hint in _WORDS:
        return _WORDS[hint]
    kind = _class_of(hint)
    return "a name" if issubclass(kind, Enum) else f"a {kind.__name__}"


def reader(hint: object) -> Reader:
    """A function that converts a value to this type, or raises Misfit.

    Lists become tuples and numpy's numbers Python's.
    """
    if is_union(hint):
        return _any_of([reader(part) for part in get_args(hint)])
    if get_origin(hint) is tuple:
        return _tuple_of(get_args(hint))
    if hint in _PLAIN:
        return _PLAIN[hint]
    kind = _class_of(hint)
    if getattr(kind, "_is_protocol", False):
        return lambda value: value
    return _member_of(kind) if issubclass(kind, Enum) else _instance_of(kind)


def _class_of(hint: Any) -> type:
    found = get_origin(hint) or hint
    # numpy 2.5 declares NDArray by a `type` statement.
    return _class_of(found.__value__) if hasattr(found, "__value__") else found


def _integer(value: object) -> int:
    if type(value) is int:
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    raise Misfit


def _number(value: object) -> float:
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        return float(value)
    raise Misfit


def _boolean(value: object) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise Misfit


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise Misfit


def _nothing(value: object) -> None:
    if value is not None:
        raise Misfit


_PLAIN: Mapping[object, Reader] = {
    int: _integer,
    float: _number,
    bool: _boolean,
    str: _text,
    type(None): _nothing,
    Any: lambda value: value,
}


def _any_of(readers: list[Reader]) -> Reader:
    def read(value: object) -> Any:
        for each in readers:
            try:
                return each(value)
            except Misfit:
                continue
        raise Misfit

    return read


def _tuple_of(parts: tuple[object, ...]) -> Reader:
    readers = [reader(part) for part in parts if part is not Ellipsis]
    if Ellipsis in parts:
        (each,) = readers

        def read(value: object) -> tuple[object, ...]:
            if not isinstance(value, tuple | list):
                raise Misfit
            return tuple([each(part) for part in value])

        return read

    def read_all(value: object) -> tuple[object, ...]:
        if not isinstance(value, tuple | list) or len(value) != len(readers):
            raise Misfit
        return tuple([each(part) for each, part in zip(readers, value, strict=True)])

    return read_all


def _member_of(kind: type[Enum]) -> Reader:
    def read(value: object) -> Enum:
        try:
            return kind(value)
        except ValueError:
            raise Misfit from None

    return read


def _instance_of(kind: type) -> Reader:
    def read(value: object) -> Any:
        if isinstance(value, kind):
            return value
        raise Misfit

    return read
