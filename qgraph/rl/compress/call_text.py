"""Values as text and back: `prune(0.5)`, `quantize(8, first=16)`, `kl_max(14.0)`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from qgraph.errors import QGraphError, UsageError, reason_of

CALL = re.compile(r"\s*([\w.]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
NAMED = re.compile(r"\s*([a-z_]\w*)\s*=\s*(.*)", re.DOTALL)
TRUTH = {"True": True, "False": False}
Table = Mapping[str, type[Any]]


def split(text: str, mark: str) -> list[str]:
    """The parts between marks that stand in no parentheses, without spaces around them."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def print_call(value: Any, table: Table) -> str:
    """A frozen dataclass as its name, its first field, and others that are not the usual ones."""
    kind, said = type(value), []
    names = {known: name for name, known in table.items()}
    for i, part in enumerate(f for f in dataclasses.fields(value) if f.init):
        found = getattr(value, part.name)
        if i == 0 and found not in ("", None):
            said.append(str(found))
        elif found != part.default:
            said.append(f"{part.name}={found}")
    name = names.get(kind, f"{kind.__module__}.{kind.__qualname__}")
    return f"{name}({', '.join(said)})"


def parse_call(text: str, table: Table, what: str) -> Any:
    """The object that `print_call` wrote. A name with a dot is that of a class to be imported.

    Raises UsageError for names and arguments that are not there.
    """
    match = CALL.fullmatch(text)
    if match is None:
        raise UsageError(f"`{text}` is not a {what}", hint=f"like {next(iter(table))}(...)")
    kind = _class(match[1], table, what)
    given: dict[str, Any] = {}
    fields = {part.name: _types(part.type) for part in dataclasses.fields(kind) if part.init}
    for i, argument in enumerate(split(match[2], ",") if (match[2] or "").strip() else []):
        named = NAMED.fullmatch(argument)
        names = list(fields)
        name = named[1] if named else names[i] if i < len(names) else argument
        if name not in fields or name in given:
            takes = ", ".join(names) or "nothing"
            raise UsageError(f"`{text.strip()}` has no place for `{argument}`; it takes {takes}")
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
        raise UsageError(f"`{text.strip()}` does not say its {', '.join(missing)}")
    try:
        return kind(**given)
    except QGraphError:
        raise
    except Exception as error:  # of one's own
        raise UsageError(f"`{text.strip()}` cannot be made: {reason_of(error)}") from error


def _types(said: Any) -> set[str]:
    """The words of a field's type, which is text where its module has annotations as text."""
    return set(re.findall(r"\w+", said.__name__ if isinstance(said, type) else str(said)))


def _class(name: str, table: Table, what: str) -> type[Any]:
    if name in table:
        return table[name]
    module, _, inside = name.rpartition(".")
    found, why = None, ""
    try:
        found = getattr(import_module(module), inside) if module else None
    except Exception as error:  # of a module of one's own, too
        why = f": {error}"
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise UsageError(
            f"no {what} is called `{name}`{why}",
            hint=f"one of {', '.join(table)}, or package.module.Class of a dataclass of yours",
        )
    return found


def _value(text: str, types: set[str], name: str, whole: str) -> Any:
    """A number where the field is one, else the text."""
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
    of_bool = "True or False" if "bool" in types else "a number"
    wanted = "a whole number" if "int" in types else of_bool
    raise UsageError(f"`{name}` of `{whole.strip()}` is {wanted}, not `{text}`")
