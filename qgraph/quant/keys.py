"""Declared keys: type, range, meaning and default of an option, in the declaration of its field.

A profile and a plan are frozen dataclasses whose fields are made by `key`. The YAML parser, the
dump, the errors, the tables in docs/profiles.md and `qgraph profiles` are derived from these
declarations.
"""

from __future__ import annotations

import inspect
import reprlib
import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, TypeAlias, TypeVar, overload

from qgraph.errors import ProfileError
from qgraph.quant.key_types import KeyMisfit, KeyType
from qgraph.records import JSON, Object

T = TypeVar("T")
AnyKeyType: TypeAlias = KeyType[Any]  # a type of any values


@dataclass(frozen=True)
class SectionType(KeyType[T]):
    """A dataclass with its own keys, a mapping in plain data."""

    word, expected = "section", "a mapping"
    kind: type[T]

    def read(self, value: object, path: str = "") -> T:
        return read(self.kind, value, f"{path}.")

    def checked(self, value: object) -> T:
        if not isinstance(value, self.kind):
            raise KeyMisfit(f"a {self.kind.__name__}")
        return value

    def write(self, value: T) -> JSON:
        return write(value)


@dataclass(frozen=True)
class ListType(KeyType[tuple[T, ...]]):
    """A list of dataclasses with their own keys."""

    word, expected = "list", "a list"
    part: SectionType[T]

    def read(self, value: object, path: str = "") -> tuple[T, ...]:
        if not isinstance(value, list):
            raise KeyMisfit(self.expected)
        return tuple(self.part.read(item, f"{path}[{i}]") for i, item in enumerate(value))

    def checked(self, value: object) -> tuple[T, ...]:
        if not isinstance(value, tuple) or not all(isinstance(v, self.part.kind) for v in value):
            raise KeyMisfit(f"a tuple of {self.part.kind.__name__}")
        return value

    def write(self, value: tuple[T, ...]) -> JSON:
        return [write(item) for item in value]


@dataclass(frozen=True)
class Key:
    """Declaration of a field.

    `path` is the key in plain data if it differs from the field's name: `accumulator.bits`. With
    `short`, a plain value in place of the mapping (`rounding: floor`) is the value of this key.
    """

    type: AnyKeyType
    meaning: str
    path: str = ""
    short: bool = False


@overload
def key(default: T, type: KeyType[T], meaning: str, path: str = ..., short: bool = ...) -> T: ...
@overload
def key(
    default: None, type: KeyType[T], meaning: str, path: str = ..., short: bool = ...
) -> T | None: ...
def key(
    default: object, type: AnyKeyType, meaning: str, path: str = "", short: bool = False
) -> object:
    """A dataclass field that is a key."""
    return field(default=default, metadata={"key": Key(type, meaning, path, short)})


def required_key(type: KeyType[T], meaning: str) -> T:
    """A dataclass field that is a key without a default."""
    made: T = field(metadata={"key": Key(type, meaning)})
    return made


@dataclass(frozen=True)
class Declared:
    """A key of a dataclass: the name of its field, its path in plain data, its default."""

    name: str
    path: str
    default: object
    key: Key

    def plain(self, value: object) -> JSON:
        """A value of the field as plain data; None stays None."""
        made: JSON = None if value is None else self.key.type.write(value)
        return made


def declared(kind: type) -> tuple[Declared, ...]:
    """The keys of a dataclass, in order."""
    return tuple(
        Declared(f.name, f.metadata["key"].path or f.name, f.default, f.metadata["key"])
        for f in fields(kind)
    )


def documented(kind: type[T]) -> type[T]:
    """Add the section Attributes to the docstring of a dataclass, from the meanings of its keys."""
    text = kind.__doc__
    if text:
        width = 100 - 8
        meanings = (
            f"    {one.name}: {one.key.meaning[:1].upper()}{one.key.meaning[1:]}."
            for one in declared(kind)
        )
        lines = [
            line
            for meaning in meanings
            for line in textwrap.wrap(meaning, width, subsequent_indent=" " * 8)
        ]
        start, gap, rest = inspect.cleandoc(text).partition("\n\nRaises:")
        kind.__doc__ = "\n".join([start, "", "Attributes:", *lines]) + gap + rest
    return kind


def leaves(kind: type, prefix: str = "") -> Iterator[Declared]:
    """The keys of a dataclass and of the dataclasses in it, with full paths (`bits.weight`)."""
    for found in declared(kind):
        path, type_ = prefix + found.path, found.key.type
        if isinstance(type_, SectionType):
            yield from leaves(type_.kind, f"{path}.")
        elif isinstance(type_, ListType):
            yield Declared(found.name, path, found.default, found.key)
            yield from leaves(type_.part.kind, f"{path}[].")
        else:
            yield Declared(found.name, path, found.default, found.key)


def check(made: object) -> None:
    """Check the fields of a dataclass that was created in Python. Raises ProfileError.

    Texts of a choice are replaced by the members of its enumeration.
    """
    for found in declared(type(made)):
        value = getattr(made, found.name)
        if value is None and (found.default is None or found.key.type.unset):
            continue
        try:
            taken = found.key.type.checked(value)
        except KeyMisfit as misfit:
            raise _wrong(found.name, str(misfit), value) from None
        object.__setattr__(made, found.name, taken)


def read(kind: type[T], data: object, prefix: str = "", what: str = "", **usual: object) -> T:
    """Read a dataclass of keys from plain data. Raises ProfileError that names the key.

    prefix: the path of the data. what: name of the data in errors. usual: defaults of fields that
    the data may leave out.
    """
    keys = {found.path: found for found in declared(kind)}
    groups: dict[str, list[str]] = {}
    for path in keys:
        head, _, rest = path.partition(".")
        groups.setdefault(head, []).extend([rest] if rest else [])
    values = usual
    for head, value in _entries(data, groups, prefix, what or prefix.removesuffix(".")):
        found = keys.get(head) or _short_key(keys, groups[head], head)
        if found is not None and (head in keys or not isinstance(value, Mapping)):
            values[found.name] = _value(found, value, prefix + head)
            continue
        for rest, part in _entries(value, groups[head], f"{prefix}{head}.", prefix + head):
            found = keys[f"{head}.{rest}"]
            values[found.name] = _value(found, part, f"{prefix}{head}.{rest}")
    for found in keys.values():
        if found.default is MISSING and found.name not in values:
            example = getattr(found.key.type, "example", found.key.type.expected)
            raise _wrong(prefix + found.path, example, None)
    return made_of(kind, values)


def _short_key(keys: Mapping[str, Declared], group: list[str], head: str) -> Declared | None:
    inner = (keys[f"{head}.{rest}"] for rest in group)
    return next((found for found in inner if found.key.short), None)


def made_of(kind: type[T], values: Mapping[str, object]) -> T:
    """Create a dataclass of keys from values of its fields, which it checks itself."""
    return kind(**values)


def write(made: object) -> Object:
    """Convert `made`, a dataclass of keys, to plain data that `read` converts back."""
    assert is_dataclass(made)
    data: Object = {}
    for found in declared(type(made)):
        value = getattr(made, found.name)
        if value is None and not found.key.type.unset:
            continue
        plain = found.plain(value)
        head, _, rest = found.path.partition(".")
        if not rest:
            data[head] = plain
        elif found.key.short:
            data[head] = plain if _is_alone(made, found) else {rest: plain}
        elif isinstance(section := data.setdefault(head, Object()), dict):
            section[rest] = plain
    return data


def values_by_path(made: object, prefix: str = "") -> Iterator[tuple[str, JSON]]:
    """Every key of a dataclass and of its sections, with its value in plain data."""
    for found in declared(type(made)):
        value, path = getattr(made, found.name), prefix + found.path
        if isinstance(found.key.type, SectionType):
            yield from values_by_path(value, f"{path}.")
        elif value is not None or found.key.type.unset:
            yield path, found.plain(value)


def _is_alone(made: object, short: Declared) -> bool:
    """Whether all keys of the mapping except the short one have their defaults."""
    head = short.path.partition(".")[0]
    return all(
        getattr(made, other.name) == other.default
        for other in declared(type(made))
        if other.path.startswith(f"{head}.") and other is not short and not other.key.short
    )


def _value(found: Declared, value: object, path: str) -> object:
    if value is None and found.key.type.unset:
        return None
    try:
        return found.key.type.read(value, path)
    except KeyMisfit as misfit:
        raise _wrong(path, str(misfit), value) from None


def _entries(
    data: object, keys: Collection[str], prefix: str, what: str
) -> Iterator[tuple[str, object]]:
    """The entries of a mapping, whose keys must be known; None has no entries."""
    if data is None:
        return
    if not isinstance(data, Mapping):
        raise ProfileError(f"{what} must be a mapping, found {_short(data)}")
    unknown = [k for k in data if k not in keys]
    if unknown:
        raise ProfileError(
            f"unknown key `{prefix}{str(unknown[0])[:60]}`",
            hint=f"known: {', '.join(sorted(keys))}",
        )
    yield from data.items()


def _wrong(path: str, expected: str, found: object) -> ProfileError:
    return ProfileError(f"`{path}` must be {expected}, found {_short(found)}")


def _short(value: object) -> str:
    """The repr of `value`, truncated for a message."""
    text = reprlib.repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
