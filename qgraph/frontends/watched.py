"""Record which parts of a node an importer reads, so that none is ignored silently.

An importer gets a node's attributes and inputs as views that record what is read. An unread
attribute must have its default, or be listed in `WITHOUT_EFFECT`; else the importer has not
expressed the node (`Construction.attempt`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, overload

V = TypeVar("V")


class WatchedAttributes(Mapping[str, V]):
    """Attributes of one node. Testing whether one exists does not count as reading it."""

    def __init__(self, attributes: Mapping[str, V]) -> None:
        self._attributes = attributes
        self._read: set[str] = set()

    def __getitem__(self, key: str) -> V:
        self._read.add(key)
        return self._attributes[key]

    def __contains__(self, key: object) -> bool:
        return key in self._attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    def mark(self, keys: Iterable[str]) -> None:
        """Count attributes as read that cannot change the result."""
        self._read.update(keys)

    def unread(self) -> list[str]:
        return [key for key in self._attributes if key not in self._read]


class WatchedInputs(Sequence[str]):
    """Inputs of a node; an omitted optional input is an empty text."""

    def __init__(self, values: Sequence[str]) -> None:
        self._values = tuple(values)
        self._read: set[int] = set()

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        at = range(len(self._values))[index]
        self._read.update((at,) if isinstance(at, int) else at)
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def mark(self, indices: Iterable[int]) -> None:
        """Count inputs as read that cannot change the result."""
        self._read.update(indices)

    def unread(self) -> list[int]:
        return [i for i, value in enumerate(self._values) if value and i not in self._read]
