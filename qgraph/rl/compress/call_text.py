"""Values as text and back: `prune(0.5)`, `quantize(8, first=16)`, `kl_max(14.0)`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from importlib import import_module

from qgraph.errors import QGraphError, UsageError, reason_of

CALL = re.compile(r"\s*([\w.]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
NAMED = re.compile(r"\s*([a-z_]\w*)\s*=\s*(.*)", re.DOTALL)
TRUTH = {"True": True, "False": False}
Table = Mapping[str, type]


def split(text: str, mark: str) -> list[str]:
    """The parts between marks outside of parentheses, without spaces around them."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def print_call(value: object, table: Table) -> str:
    """A frozen dataclass as its name, its first field, and the fields without their defaults."""
    assert dataclasses.is_dataclass(value)
    kind, arguments = type(value), list[str]()
    names = {known: name for name, known in table.items()}
    for i, part in enumerate(f for f in dataclasses.fields(value) if f.init):
        argument = getattr(value, part.name)
        if i == 0 and argument not in ("", None):
            arguments.append(str(argument))
        elif argument != part.default:
            arguments.append(f"{part.name}={argument}")
    name = names.get(kind, f"{kind.__module__}.{kind.__qualname__}")
    return f"{name}({', '.join(arguments)})"


def parse_call(text: str, table: Table, what: str) -> object:
    """The object that `print_call` wrote. A name with a dot is a class to be imported.

    Raises UsageError for unknown names and arguments.
    """
    match = CALL.fullmatch(text)
    if match is None:
        raise UsageError(f"`{text}` is not a {what}", hint=f"like {next(iter(table))}(...)")
    kind = _class(match[1], table, what)
    given: dict[str, object] = {}
    fields = {part.name: _types(part.type) for part in dataclasses.fields(kind) if part.init}
    for i, argument in enumerate(split(match[2], ",") if (match[2] or "").strip() else []):
        named = NAMED.fullmatch(argument)
        names = list(fields)
        name = named[1] if named else names[i] if i < len(names) else argument
        if name not in fields or name in given:
            takes = ", ".join(names) or "nothing"
            raise UsageError(
                f"`{text.strip()}` does not take `{argument}`", hint=f"it takes {takes}"
            )
        given[name] = _value(named[2] if named else argument, fields[name], name, text)
    missing = [
        part.name
        for part in dataclasses.fields(kind)
        if part.init
        and part.default is dataclasses.MISSING
        and part.default_factory is dataclasses.MISSING
        and part.name not in given
    ]
    if missing:
        raise UsageError(f"`{text.strip()}` needs its {', '.join(missing)}")
    try:
        return kind(**given)
    except QGraphError:
        raise
    except Exception as error:  # of a custom class
        raise UsageError(f"`{text.strip()}` cannot be created: {reason_of(error)}") from error


def _types(declared: object) -> set[str]:
    """The words of a field's type, which is text if its module has annotations as text."""
    name = declared.__name__ if isinstance(declared, type) else str(declared)
    return set(re.findall(r"\w+", name))


def _class(name: str, table: Table, what: str) -> type:
    if name in table:
        return table[name]
    module, _, inside = name.rpartition(".")
    kind, why = None, ""
    try:
        kind = getattr(import_module(module), inside) if module else None
    except Exception as error:  # of a custom module, too
        why = f": {error}"
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise UsageError(
            f"unknown {what} `{name}`{why}",
            hint=f"choose one of {', '.join(table)}, or your own dataclass as package.module.Class",
        )
    return kind


def _value(text: str, types: set[str], name: str, whole: str) -> bool | float | str | None:
    """A value of one of these types: None, a truth value, a number, or else the text."""
    text = text.strip()
    if text == "None" and types & {"None", "Optional"}:
        return None
    if text in TRUTH and "bool" in types:
        return TRUTH[text]
    for form, read in (("int", int), ("float", float)):
        if form in types:
            try:
                return read(text)
            except ValueError:
                pass
    if "str" in types and text:
        return text
    other = "True or False" if "bool" in types else "a number"
    wanted = "a whole number" if "int" in types else other
    raise UsageError(f"`{name}` of `{whole.strip()}` must be {wanted}, not `{text}`")
