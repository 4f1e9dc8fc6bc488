"""Convert options to text and back, by the types of a dataclass's fields.

    {biases=true, powers-of-two=false}
    {shapes=[[image, [1, 224, 224, 3]]]}
    {exponents={state=[3, 0, -1]}}

A value is a word, text in double quotes, a list in `[]` or options in `{}`. What it means depends
on the type of its field: `true`, `false`, numbers, `none`, text, lists, mappings and dataclasses.
"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from qgraph.errors import UsageError

MAX_DEPTH = 50  # nesting depth of lists and options
NONE, TRUE, FALSE = "none", "true", "false"
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[^\s,{}\[\]=\"]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


# -- text to a tree -------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    """A word, or text that was written in quotes."""

    text: str
    quoted: bool = False

    def __str__(self) -> str:
        return _quoted(self.text) if self.quoted else self.text


Tree: TypeAlias = "Word | list[Tree] | dict[str, Tree]"


class TextCursor:
    """A cursor over text. Raises UsageError for text that is not in the form of `what`."""

    def __init__(self, text: str, what: str) -> None:
        self.text, self.what, self.at = text, what, 0
        self._depth = 0  # number of open lists and options

    def error(self, expected: str) -> UsageError:
        found = self.text[self.at : self.at + 20]
        place = f"found `{found}`" if found else "the text ends"
        return UsageError(
            f"{self.what}: expected {expected} at character {self.at + 1}, {place}",
            hint=f"in `{self.text}`",
        )

    @property
    def ended(self) -> bool:
        self._skip_space()
        return self.at == len(self.text)

    def takes(self, mark: str) -> bool:
        """Skip `mark` if it comes next, and return whether it did."""
        self._skip_space()
        found = self.text.startswith(mark, self.at)
        self.at += len(mark) * found
        return found

    def word(self, expected: str) -> Word:
        self._skip_space()
        for form in (_STRING, _WORD):
            match = form.match(self.text, self.at)
            if match is None:
                continue
            if form is _WORD:
                self.at = match.end()
                return Word(match[0])
            try:
                text = json.loads(match[0])
            except ValueError:
                raise self.error("text in quotes, as JSON writes it") from None
            self.at = match.end()
            return Word(text, quoted=True)
        raise self.error(expected)

    def value(self) -> Tree:
        if self._depth > MAX_DEPTH:
            raise UsageError(f"{self.what}: values are nested more than {MAX_DEPTH} deep")
        self._depth += 1
        try:
            if self.takes("["):
                return self._list()
            return self.options() if self.takes("{") else self.word("a value")
        finally:
            self._depth -= 1

    def options(self) -> dict[str, Tree]:
        """Parse names and values after `{`, to the `}`."""
        found: dict[str, Tree] = {}
        while not self.takes("}"):
            name = self.word("the name of an option, or `}`").text
            if not self.takes("="):
                raise self.error(f"`=` after `{name}`")
            if name in found:
                raise UsageError(f"{self.what}: `{name}` is given twice", hint=f"in `{self.text}`")
            found[name] = self.value()
            if not self.takes(","):
                if not self.takes("}"):
                    raise self.error("`,` or `}`")
                break
        return found

    def _list(self) -> list[Tree]:
        found: list[Tree] = []
        while not self.takes("]"):
            found.append(self.value())
            if not self.takes(","):
                if not self.takes("]"):
                    raise self.error("`,` or `]`")
                break
        return found

    def _skip_space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at


# -- a tree to values -----------------------------------------------------------------------


class Mismatch(Exception):
    """A tree is not a value of the type; the message lists the legal values."""


Read = Callable[[str], object]


@dataclass(frozen=True)
class Codec:
    """Reads and writes values by type.

    loaders: functions that read a dataclass from one word, such as a profile from its name. names:
    functions that return the word of a value, if it has one.
    """

    loaders: Mapping[type[object], Read] = field(default_factory=dict)
    names: Mapping[type[object], Callable[[Any], str | None]] = field(default_factory=dict)

    def read(self, tree: Tree, kind: object) -> object:
        """Convert `tree` to a value of type `kind`. Raises Mismatch."""
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return self._first_that_reads(tree, kind, arguments)
        if origin is Literal:
            return self._choice(tree, kind, {_word_of(choice): choice for choice in arguments})
        if isinstance(kind, type) and issubclass(kind, Enum):
            return self._choice(tree, kind, {str(member.value): member for member in kind})
        if kind in _WORDS and isinstance(tree, Word):
            try:
                return _WORDS[kind](tree)
            except ValueError:
                raise Mismatch(legal(kind)) from None
        if _is_mapping(origin or kind) and isinstance(tree, dict):
            key, value = arguments or (str, Any)
            return {self.read(Word(k), key): self.read(v, value) for k, v in tree.items()}
        if _is_list(origin or kind) and isinstance(tree, list):
            return self._items(tree, kind, origin or kind, arguments)
        if isinstance(kind, type) and is_dataclass(kind):
            if isinstance(tree, Word) and kind in self.loaders:
                return self.loaders[kind](tree.text)
            if isinstance(tree, dict):
                return kind(**self.read_fields(tree, kind))
        raise Mismatch(legal(kind))

    def read_fields(self, tree: Mapping[str, Tree], kind: type[object]) -> dict[str, object]:
        """Values for the fields of a dataclass. Raises Mismatch for a wrong name or value."""
        known = {part.name: part for part in options_of(kind)}
        hints, found = typing.get_type_hints(kind), dict[str, object]()
        for name, value in tree.items():
            own = name.replace("-", "_")
            if own not in known or own in found:
                raise Mismatch(f"{legal(kind)}; `{name}` is not one of them")
            found[own] = self.read(value, hints[own])
        missing = [name for name, part in known.items() if name not in found and _needed(part)]
        if missing:
            raise Mismatch(f"{legal(kind)}; `{option_name(missing[0])}` is missing")
        return found

    def _first_that_reads(self, tree: Tree, kind: object, arguments: tuple[object, ...]) -> object:
        for argument in sorted(arguments, key=lambda a: a is str):  # text last: it matches any word
            try:
                return self.read(tree, argument)
            except Mismatch:
                continue
        raise Mismatch(legal(kind))

    def _choice(self, tree: Tree, kind: object, choices: Mapping[str, object]) -> object:
        if isinstance(tree, Word) and tree.text in choices:
            return choices[tree.text]
        raise Mismatch(legal(kind))

    def _items(
        self, tree: list[Tree], kind: object, origin: object, arguments: tuple[object, ...]
    ) -> object:
        if _is_tuple(origin) and arguments and Ellipsis not in arguments:
            if len(tree) != len(arguments):
                raise Mismatch(legal(kind))
            return tuple(self.read(t, a) for t, a in zip(tree, arguments, strict=True))
        item = arguments[0] if arguments else str
        made = tuple(self.read(t, item) for t in tree)
        if isinstance(origin, type) and issubclass(origin, Set):
            return frozenset(made)
        return list(made) if origin is list else made

    # -- values to text -----------------------------------------------------------------------

    def write(self, value: object) -> str:
        """Convert `value` to text that `read` converts back. Raises Mismatch."""
        if value is None:
            return NONE
        if isinstance(value, bool):
            return TRUE if value else FALSE
        if isinstance(value, Enum):
            return _plain(str(value.value))
        if isinstance(value, int | float):
            return repr(value)
        if isinstance(value, str):
            return _plain(value)
        if isinstance(value, Mapping):
            pairs = (f"{_plain(str(k))}={self.write(v)}" for k, v in value.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, Set):
            return f"[{', '.join(sorted(self.write(v) for v in value))}]"
        if isinstance(value, Sequence):
            return f"[{', '.join(self.write(v) for v in value)}]"
        if is_dataclass(value) and not isinstance(value, type):
            name = self.names[type(value)](value) if type(value) in self.names else None
            return self.write_fields(value) or "{}" if name is None else _plain(name)
        raise Mismatch(f"a {type(value).__name__} cannot be written as text")

    def write_fields(self, value: object) -> str:
        """The options of a dataclass that differ from its defaults, in braces; or nothing."""
        changed = [
            f"{option_name(part.name)}={self.write(getattr(value, part.name))}"
            for part in options_of(type(value))
            if _needed(part) or getattr(value, part.name) != default_of(part)
        ]
        return f"{{{', '.join(changed)}}}" if changed else ""


def _word(tree: Word) -> str:
    return tree.text


def _flag(tree: Word) -> bool:
    if tree.quoted or tree.text not in (TRUE, FALSE):
        raise ValueError
    return tree.text == TRUE


def _whole(tree: Word) -> int:
    if tree.quoted or re.fullmatch(r"[+-]?\d+", tree.text, re.ASCII) is None:
        raise ValueError
    return int(tree.text)


def _number(tree: Word) -> float:
    if tree.quoted or "_" in tree.text:
        raise ValueError
    return float(tree.text)


def _nothing(tree: Word) -> None:
    if tree.quoted or tree.text != NONE:
        raise ValueError


_WORDS: Mapping[object, Callable[[Word], object]] = {
    str: _word, bool: _flag, int: _whole, float: _number, type(None): _nothing, Any: _word,
    object: _word,
}  # fmt: skip


def _is_tuple(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple)


def _is_list(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Sequence | Set) and not issubclass(kind, str)


def _is_mapping(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Mapping)


# -- what may be written --------------------------------------------------------------------


def options_of(kind: type) -> list[Field[object]]:
    """The fields of a dataclass that are parameters of its constructor."""
    return [part for part in fields(kind) if part.init]


def option_name(name: str) -> str:
    """A field's name in text: `powers-of-two`."""
    return name.replace("_", "-")


def default_of(part: Field[object]) -> object:
    """The default of a field; MISSING if it has none."""
    return part.default if part.default_factory is MISSING else part.default_factory()


def _needed(part: Field[object]) -> bool:
    return default_of(part) is MISSING


def legal(kind: object) -> str:
    """The values of a type, in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    simple = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        type(None): NONE,
    }
    if kind in simple:
        return simple[kind]
    if origin in (Union, types.UnionType):
        return " or ".join(legal(a) for a in sorted(arguments, key=lambda a: a is type(None)))
    if origin is Literal:
        return f"one of {', '.join(map(_word_of, arguments))}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(str(member.value) for member in kind)}"
    if _is_mapping(origin or kind):
        inner = legal(arguments[1]) if arguments else "a value"
        return f"{{NAME=VALUE, ...}}, each value {inner}"
    if _is_tuple(origin) and arguments and Ellipsis not in arguments:
        return f"[{', '.join(legal(a) for a in arguments)}]"
    if _is_list(origin or kind):
        return f"a list [...] of {legal(arguments[0]) if arguments else 'text'}"
    if isinstance(kind, type) and is_dataclass(kind):
        names = (option_name(part.name) for part in options_of(kind))
        return f"{{...}} with {', '.join(names)}"
    return f"a {getattr(kind, '__name__', kind)}, which cannot be written as text"


def _word_of(value: object) -> str:
    if value is None:
        return NONE
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(text: str) -> str:
    """Text without quotes if it is one word that means nothing else; otherwise in quotes."""
    reserved = text.lower() in (NONE, TRUE, FALSE) or _is_number(text)
    return text if _WORD.fullmatch(text) and not reserved else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
