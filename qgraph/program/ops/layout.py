"""How attributes are laid out in `.qgi` files, by their types."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from operator import index
from typing import SupportsIndex, get_args

from qgraph.ops.attribute_types import Pads, Pair, is_union, type_hints, words
from qgraph.ops.attributes import Attributes, declarations

__all__ = ["FileLayout", "Pads", "Pair", "PerChannel", "layout_of", "type_words"]

PerChannel = int | tuple[int, ...]
COUNTED = "a count, then this many numbers"


@dataclass(frozen=True)
class FileLayout:
    """An attribute as int64 numbers in a file.

    counted: the numbers are preceded by their count. words: a description of the numbers. choices:
    a value is written as its index in this tuple.
    """

    counted: bool
    words: str
    choices: tuple[object, ...] = ()

    def numbers(self, value: object) -> list[int]:
        if self.choices:
            return [self.choices.index(value)]
        found = [] if value is None else [*_flat(value)]
        return [len(found), *found] if self.counted else found

    def __str__(self) -> str:
        if self.choices:
            return ", ".join(f"{i} for {choice}" for i, choice in enumerate(self.choices))
        return self.words


def layout_of(kind: type[Attributes]) -> Mapping[str, FileLayout]:
    """The layout of every attribute, by name."""
    return _layouts(_key(kind))


def type_words(kind: type[Attributes], name: str) -> str:
    """The type of an attribute, in words."""
    return words(type_hints(_key(kind))[name])


def _key(kind: type[Attributes]) -> type:
    return kind  # mypy finds no hash for the class of a dataclass


@cache
def _layouts(kind: type) -> Mapping[str, FileLayout]:
    hints = type_hints(kind)
    return {d.name: _layout(hints[d.name], d.choices) for d in declarations(kind)}


def _layout(hint: object, choices: tuple[object, ...]) -> FileLayout:
    if choices:
        return FileLayout(False, "", choices)
    if is_union(hint):
        none = "none for None, " if type(None) in get_args(hint) else ""
        return FileLayout(
            True, f"{COUNTED}: {none}one for all, or one for each index of the last axis"
        )
    if get_args(hint) == (int, ...):
        return FileLayout(True, COUNTED)
    return FileLayout(False, _UNCOUNTED[hint])


_UNCOUNTED: Mapping[object, str] = types.MappingProxyType(
    {
        int: "a number",
        Pair: "2 numbers: of height, of width",
        Pads: "4 numbers: top, bottom, left, right",
        tuple[Pair, ...]: "2 numbers for each axis: before, after",
        tuple[int | None, ...]: "",  # not in files
    }
)


def _flat(value: object) -> Iterator[int]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    else:
        assert isinstance(value, SupportsIndex), value
        yield index(value)
