"""Declared keys: type, range, meaning and default of an option, stated where its field is.

A profile and a plan are frozen dataclasses whose fields are made by `key`. The YAML parser, the
dump, the errors, the tables in docs/profiles.md and `qgraph profiles` are derived from these
declarations.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from qgraph.errors import ProfileError
from qgraph.quant.key_types import KeyMisfit, KeyType

T = TypeVar("T")


@dataclass(frozen=True)
class SectionType(KeyType):
    """A dataclass of keys of its own, a mapping in plain data."""

    word = "section"
    kind: type

    @property
    def expected(self) -> str:
        return "a mapping"

    def read(self, value: Any, path: str = "") -> Any:
        return read(self.kind, value, f"{path}.")

    def checked(self, value: Any) -> Any:
        if not isinstance(value, self.kind):
            raise KeyMisfit(f"a {self.kind.__name__}")
        return value

    def write(self, value: Any) -> Any:
        return write(value)


@dataclass(frozen=True)
class ListType(KeyType):
    """A list of dataclasses with keys of their own."""

    word = "list"
    kind: type

    @property
    def expected(self) -> str:
        return "a list"

    def read(self, value: Any, path: str = "") -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise KeyMisfit(self.expected)
        return tuple(read(self.kind, item, f"{path}[{i}].") for i, item in enumerate(value))

    def checked(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple) or not all(isinstance(v, self.kind) for v in value):
            raise KeyMisfit(f"a tuple of {self.kind.__name__}")
        return value

    def write(self, value: tuple[Any, ...]) -> list[Any]:
        return [write(item) for item in value]


@dataclass(frozen=True)
class Key:
    """Declaration of a field.

    `path` is the key in plain data where that is not the field's name: `accumulator.bits`. With
    `short`, a value in place of the mapping (`rounding: floor`) is a value of this key.
    """

    type: KeyType
    meaning: str
    path: str = ""
    short: bool = False


def key(default: Any, type: KeyType, meaning: str, path: str = "", short: bool = False) -> Any:
    """A dataclass field that is a key; `default` MISSING makes it a required one."""
    return field(default=default, metadata={"key": Key(type, meaning, path, short)})


@dataclass(frozen=True)
class Declared:
    """A key of a dataclass: the name of its field, its path in plain data, its default."""

    name: str
    path: str
    default: Any
    key: Key


def declared(kind: type) -> tuple[Declared, ...]:
    """The keys of a dataclass, in order."""
    return tuple(
        Declared(f.name, f.metadata["key"].path or f.name, f.default, f.metadata["key"])
        for f in fields(kind)
    )


def leaves(kind: type, prefix: str = "") -> Iterator[Declared]:
    """The keys of a dataclass and of the dataclasses in it, with whole paths (`bits.weight`)."""
    for found in declared(kind):
        path, type_ = prefix + found.path, found.key.type
        if isinstance(type_, SectionType):
            yield from leaves(type_.kind, f"{path}.")
        elif isinstance(type_, ListType):
            yield Declared(found.name, path, found.default, found.key)
            yield from leaves(type_.kind, f"{path}[].")
        else:
            yield Declared(found.name, path, found.default, found.key)


def check(made: Any) -> None:
    """Check the fields of a dataclass that Python code makes. Raises ProfileError.

    Texts of a choice become the members of its enumeration.
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


def read(kind: type[T], data: Any, prefix: str = "", what: str = "", **usual: Any) -> T:
    """A dataclass of keys from plain data. Raises ProfileError that names the key.

    `prefix` is the path of the data, `what` what an error calls it; `usual` are fields that the
    data may leave out.
    """
    top = _mapping(data, what or prefix.removesuffix("."))
    keys = {found.path: found for found in declared(kind)}
    groups: dict[str, list[str]] = {}
    for path in keys:
        head, _, rest = path.partition(".")
        groups.setdefault(head, []).extend([rest] if rest else [])
    _known(top, groups, prefix)
    values: dict[str, Any] = usual
    for head, value in top.items():
        if not groups[head]:
            values[keys[head].name] = _value(keys[head], value, prefix + head)
            continue
        short = [
            keys[f"{head}.{rest}"] for rest in groups[head] if keys[f"{head}.{rest}"].key.short
        ]
        if short and not isinstance(value, Mapping):
            values[short[0].name] = _value(short[0], value, prefix + head)
            continue
        inner = _mapping(value, prefix + head)
        _known(inner, groups[head], f"{prefix}{head}.")
        for rest, part in inner.items():
            found = keys[f"{head}.{rest}"]
            values[found.name] = _value(found, part, f"{prefix}{head}.{rest}")
    for found in keys.values():
        if found.default is MISSING and found.name not in values:
            example = getattr(found.key.type, "example", found.key.type.expected)
            raise _wrong(prefix + found.path, example, None)
    return kind(**values)


def write(made: Any) -> dict[str, Any]:
    """Plain data that `read` reads back as `made`, a dataclass of keys."""
    assert is_dataclass(made)
    data: dict[str, Any] = {}
    for found in declared(type(made)):
        value = getattr(made, found.name)
        if value is None and not found.key.type.unset:
            continue
        plain = None if value is None else found.key.type.write(value)
        head, _, rest = found.path.partition(".")
        if not rest:
            data[head] = plain
        elif found.key.short:
            data[head] = plain if _is_alone(made, found) else {rest: plain}
        elif isinstance(data.setdefault(head, {}), dict):
            data[head][rest] = plain
    return data


def values_by_path(made: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a dataclass and of its sections with its value in plain data."""
    for found in declared(type(made)):
        value, path = getattr(made, found.name), prefix + found.path
        if isinstance(found.key.type, SectionType):
            yield from values_by_path(value, f"{path}.")
        elif value is not None or found.key.type.unset:
            yield path, None if value is None else found.key.type.write(value)


def _is_alone(made: Any, short: Declared) -> bool:
    """Whether the other keys of a short key's mapping have their defaults."""
    head = short.path.partition(".")[0]
    return all(
        getattr(made, other.name) == other.default
        for other in declared(type(made))
        if other.path.startswith(f"{head}.") and other is not short and not other.key.short
    )


def _value(found: Declared, value: Any, path: str) -> Any:
    if value is None and found.key.type.unset:
        return None
    try:
        return found.key.type.read(value, path)
    except KeyMisfit as misfit:
        raise _wrong(path, str(misfit), value) from None


def _known(data: Mapping[Any, Any], keys: Any, prefix: str) -> None:
    unknown = [k for k in data if k not in keys]
    if unknown:
        raise ProfileError(
            f"unknown key `{prefix}{str(unknown[0])[:60]}`",
            hint=f"known: {', '.join(sorted(keys))}",
        )


def _mapping(value: Any, what: str) -> Mapping[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ProfileError(f"{what} must be a mapping, found {_short(value)}")
    return value


def _wrong(path: str, expected: str, found: Any) -> ProfileError:
    return ProfileError(f"`{path}` must be {expected}, found {_short(found)}")


def _short(value: Any) -> str:
    """`value` as Python writes it, cut to a length that a message can have."""
    text = reprlib.repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
