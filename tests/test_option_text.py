"""Options as text: what is written is read back, and what is wrong is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import UsageError
from qgraph.option_text import Codec, Mismatch, TextCursor, legal


class Side(str, Enum):
    LEFT = "left"
    RIGHT = "right-hand"


@dataclass(frozen=True)
class Inner:
    depth: int = 0
    label: str | None = None


@dataclass(frozen=True)
class Options:
    flag: bool = False
    count: int = 0
    ratio: float = 0.5
    text: str = ""
    maybe: float | None = None
    either: int | str = 0
    mode: Literal["off", "true", 3] = "off"
    side: Side = Side.LEFT
    shape: tuple[int | None, ...] = ()
    pair: tuple[str, float] = ("", 0.0)
    many: list[str] = field(default_factory=list)
    names: frozenset[str] = frozenset()
    scales: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inner: Inner = Inner()
    others: Sequence[Inner] = ()


numbers = st.floats(allow_nan=False)
inners = st.builds(Inner, st.integers(), st.none() | st.text())
options = st.builds(
    Options,
    st.booleans(),
    st.integers(),
    numbers,
    st.text(),
    st.none() | numbers,
    st.integers() | st.text(),
    st.sampled_from(["off", "true", 3]),
    st.sampled_from(Side),
    st.lists(st.none() | st.integers()).map(tuple),
    st.tuples(st.text(), numbers),
    st.lists(st.text()),
    st.frozensets(st.text()),
    st.dictionaries(st.text(), st.lists(st.integers()).map(tuple)),
    inners,
    st.lists(inners).map(tuple),
)


def read(text: str, kind: Any = Options) -> Any:
    reader = TextCursor(text, "options")
    tree = reader.value()
    assert reader.ended
    return Codec().read(tree, kind)


@given(options)
def test_what_is_written_is_read_back(value):
    assert read(Codec().write_fields(value) or "{}") == value


@given(st.text())
def test_any_text_is_read_or_is_an_error_of_ours(text):
    with suppress(UsageError, Mismatch):
        Codec().read(TextCursor(text, "options").value(), Options)


def test_text_is_short_where_it_can_be():
    value = Options(text="a/b:0", shape=(None, 3), pair=("x y", 1.0), flag=True)
    assert Codec().write_fields(value) == (
        '{flag=true, text=a/b:0, shape=[none, 3], pair=["x y", 1.0]}'
    )


@pytest.mark.parametrize("word", ["none", "true", "False", "1", "1e3", "nan", "inf", "", "a,b"])
def test_text_that_reads_like_something_else_is_quoted(word):
    assert Codec().write(word) == f'"{word}"'
    assert read(Codec().write(word), str) == word and read(f'"{word}"', str | None) == word


@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        ("maybe", bool, "true or false"),
        ('"true"', bool, "true or false"),
        ("1.5", int, "a whole number"),
        ("1_000", int, "a whole number"),
        ("x", float, "a number"),
        ("x", float | None, "a number or none"),
        ("up", Side, "one of left, right-hand"),
        ("on", Literal["off", "true", 3], "one of off, true, 3"),
        ("[1]", tuple[str, float], "[text, a number]"),
        ("[x]", tuple[int, ...], "a whole number"),
        ("1", tuple[int, ...], "a list [...] of a whole number"),
        ("{a=x}", Mapping[str, int], "a whole number"),
        ("{deep=1}", Inner, "{...} with depth, label; `deep` is not one of them"),
        ("[1]", str, "text"),
    ],
    ids=str,
)
def test_a_wrong_value_is_answered_with_the_legal_ones(text, kind, wanted):
    with pytest.raises(Mismatch) as error:
        read(text, kind)
    assert str(error.value) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{a=1", "expected `,` or `}` at character 5, the text ends"),
        ("{a}", "expected `=` after `a` at character 3, found `}`"),
        ("{a=1, a=2}", "`a` is given twice"),
        ("[1 2]", "expected `,` or `]` at character 4, found `2]`"),
        ('"\\q"', "expected text in quotes"),
        ("{=1}", "expected the name of an option, or `}` at character 2"),
        ("", "expected a value at character 1, the text ends"),
    ],
)
def test_text_that_does_not_parse_is_pointed_at(text, wanted):
    with pytest.raises(UsageError) as error:
        TextCursor(text, "options").value()
    assert error.value.message.startswith(f"options: {wanted}")


@pytest.mark.parametrize("opening", ["[", "{a="])
def test_text_that_is_nested_deeply_is_refused(opening):
    with pytest.raises(UsageError, match="nested more than 50 deep"):
        TextCursor(opening * 100_000, "options").value()


def test_every_type_of_the_options_has_words():
    assert all(legal(kind) for kind in get_type_hints(Options).values())


def test_values_that_have_a_name_are_read_and_written_by_it():
    known = {"deep": Inner(9), "flat": Inner()}
    codec = Codec(
        loaders={Inner: known.__getitem__},
        names={Inner: lambda v: next((n for n, k in known.items() if k == v), None)},
    )
    assert codec.write_fields(Options(inner=Inner(9))) == "{inner=deep}"
    assert codec.read({"inner": TextCursor("deep", "").value()}, Options).inner == Inner(9)
    assert codec.write_fields(Options(inner=Inner(3))) == "{inner={depth=3}}"


def test_values_that_text_does_not_have_are_refused():
    @dataclass(frozen=True)
    class Odd:
        what: object = None

    with pytest.raises(Mismatch, match="a complex cannot be written as text"):
        Codec().write_fields(Odd(1j))
