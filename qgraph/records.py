"""Convert records, which are frozen dataclasses, to JSON and back, by the types of their fields.

A record's keys are the names of its fields, in order, without an underscore at their end. JSON
has no infinity: `null` stands for one, and a field of type `float` reads it as infinity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
Object: TypeAlias = dict[str, JSON]

# Metadata of fields. FLAT: a record whose keys are among those of the record around it (all of them
# may be absent if the default is None). OMITTED: a key that is absent if the value is None.
FLAT: Mapping[str, bool] = MappingProxyType({"flat": True})
OMITTED: Mapping[str, bool] = MappingProxyType({"omitted": True})


def to_json(value: object) -> JSON:
    """Convert `value` to JSON types. Raises TypeError for a value that JSON does not support."""
    if is_dataclass(value) and not isinstance(value, type):
        return dict(_entries(value))
    if isinstance(value, Mapping):
        return {str(key): to_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    if isinstance(value, Enum):
        return to_json(value.value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"JSON does not support a {type(value).__name__}")


def to_object(record: object) -> Object:
    """A record as a JSON object."""
    return dict(_entries(record))


class KeyedRecord(Mapping[str, JSON]):
    """Base of records that can also be read by the keys of their JSON, as ``facts["warnings"]``."""

    def __getitem__(self, key: str) -> JSON:
        return to_object(self)[key]

    def __iter__(self) -> Iterator[str]:
        return iter(to_object(self))

    def __len__(self) -> int:
        return len(to_object(self))


def _entries(record: object) -> Iterator[tuple[str, JSON]]:
    kind: type = type(record)
    for one in _fields(kind):
        value = getattr(record, one.name)
        if "flat" in one.metadata:
            yield from () if value is None else _entries(value)
        elif not ("omitted" in one.metadata and value is None):
            yield _key(one), to_json(value)


def _key(one: Field[object]) -> str:
    return one.name.removesuffix("_")


def from_json(kind: type[T], data: object) -> T:
    """Read the record or value of type `kind` that `to_json` wrote as `data`.

    Unknown keys are ignored. Raises ValueError that names the key.
    """
    return cast(T, _read(kind, data, ()))


def _read(kind: object, data: object, at: tuple[str, ...]) -> object:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _any_of(parts, data, at)
    if isinstance(kind, type) and is_dataclass(kind):
        return _record(kind, data, at)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _read(parts[1], entry, (*at, key)) for key, entry in _items(data, at)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return _sequence(origin, parts, data, at)
    if kind is float:
        return math.inf if data is None else _checked(data, (int, float), at)
    if kind is object:
        return data
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member(kind, data, at)
    return _checked(data, (cast(type, kind),), at)


def _member(kind: type[Enum], data: object, at: tuple[str, ...]) -> Enum:
    try:
        return kind(data)
    except ValueError:
        legal = ", ".join(str(member.value) for member in kind)
        raise ValueError(f"`{'.'.join(at)}` is {data!r:.40}, not one of {legal}") from None


def _any_of(kinds: Sequence[object], data: object, at: tuple[str, ...]) -> object:
    if data is None and NoneType in kinds:
        return None
    for kind in (kind for kind in kinds if kind is not NoneType):
        try:
            return _read(kind, data, at)
        except ValueError as error:
            last = error
    raise last


def _record(kind: type, data: object, at: tuple[str, ...]) -> object:
    found, hints = dict(_items(data, at)), _hints(kind)
    values: dict[str, object] = {}
    for one in _fields(kind):
        if "flat" in one.metadata:
            if one.default is MISSING or _any_key(hints[one.name], found):
                values[one.name] = _read(hints[one.name], data, at)
        elif (key := _key(one)) in found:
            values[one.name] = _read(hints[one.name], found[key], (*at, key))
        elif one.default is MISSING and one.default_factory is MISSING:
            raise ValueError(f"`{'.'.join((*at, key))}` is missing")
    return kind(**values)


def _any_key(kind: object, found: Mapping[str, object]) -> bool:
    kinds = [part for part in get_args(kind) or (kind,) if is_dataclass(part)]
    return any(_key(one) in found for part in kinds for one in _fields(cast(type, part)))


def _sequence(origin: type, parts: Sequence[object], data: object, at: tuple[str, ...]) -> object:
    entries = _checked(data, (list, tuple), at)
    assert isinstance(entries, list | tuple)
    if origin is tuple and parts[-1] is not Ellipsis:
        if len(entries) != len(parts):
            raise ValueError(f"`{'.'.join(at)}` has {len(entries)} entries, not {len(parts)}")
        kinds: Iterable[object] = parts
    else:
        kinds = [parts[0]] * len(entries)
    read = [
        _read(kind, entry, (*at, str(i)))
        for i, (kind, entry) in enumerate(zip(kinds, entries, strict=True))
    ]
    return read if origin is list else tuple(read)


def _items(data: object, at: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    if not isinstance(data, Mapping):
        raise ValueError(f"`{'.'.join(at)}` is not an object")
    yield from data.items()


def _checked(data: object, kinds: tuple[type, ...], at: tuple[str, ...]) -> object:
    if not isinstance(data, kinds) or (isinstance(data, bool) and bool not in kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"`{'.'.join(at)}` is {data!r:.40}, not {wanted}")
    return data


@cache
def _hints(kind: type) -> Mapping[str, object]:
    return get_type_hints(kind)


@cache
def _fields(kind: type) -> tuple[Field[object], ...]:
    return fields(kind)
