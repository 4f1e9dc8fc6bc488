"""The declaration of a key is what the parser, the dump, the documentation and Python take."""

from __future__ import annotations

import re
from dataclasses import MISSING
from pathlib import Path

import pytest

from qgraph.errors import ProfileError
from qgraph.quant.key_tables import TABLES, key_facts, with_tables
from qgraph.quant.keys import values_by_path, write
from qgraph.quant.profile import Bits, Override, Profile, load_profile, parse_profile, profile_keys

DOCS = Path(__file__).parents[2] / "docs"
KEYS = [found for found in profile_keys() if found.path != "overrides" and "[" not in found.path]


def nested(path: str, value: object) -> object:
    """`{"bits": {"weight": value}}` from `bits.weight`."""
    for part in reversed(path.split(".")):
        value = {part: value}
    return value


@pytest.mark.parametrize("found", KEYS, ids=lambda found: found.path)
def test_the_default_is_declared(found) -> None:
    if found.default is MISSING:
        assert found.path == "name"
        return
    plain = None if found.default is None else found.key.type.write(found.default)
    assert parse_profile(nested(found.path, plain), "p") == Profile("p")


@pytest.mark.parametrize("found", KEYS, ids=lambda found: found.path)
def test_what_the_parser_takes_is_what_is_declared(found) -> None:
    """The ends of a range and each choice are read and dumped; what lies outside is refused."""
    facts = found.key.type.facts
    low, high = facts.range or (0, 0)
    legal = {
        "whole number": [low, high],
        "two whole numbers": [[low, high], [low, low]],
        "choice": facts.choices,
        "switch": facts.choices,
        "text": ["", "x"],
    }[facts.type]
    for value in [*legal, *([None] if facts.null else [])]:
        made = parse_profile(nested(found.path, value), "p")
        assert dict(values_by_path(made))[found.path] == value
        assert parse_profile(write(made), "p") == made
    wrong = {
        "whole number": [low - 1, high + 1, 8.0, True, "8"],
        "two whole numbers": [[low - 1, high], [low, high + 1], [high, low], [0], 0],
        "choice": ["", "none", 1, [], True],
        "switch": ["", 1, "none", []],
        "text": [7, ["x"], {}],
    }[facts.type]
    for value in [*wrong, *([] if facts.null else [None])]:
        with pytest.raises(ProfileError, match=rf"^p: `{re.escape(found.path)}` must be "):
            parse_profile(nested(found.path, value), "p")


def test_python_is_checked_as_yaml_is() -> None:
    with pytest.raises(ProfileError, match="`weight` must be a whole number from 2 to 16"):
        Bits(weight=17)
    with pytest.raises(ProfileError, match="`match` must be text"):
        Override(7)  # type: ignore[arg-type]
    for wrong in ({"rounding": "up"}, {"bits": 8}, {"accumulator_wraps": "wrap"}, {"shift": (1, 0)},
                  {"overrides": [Override("x")]}, {"overrides": ("x",)}):  # fmt: skip
        with pytest.raises(ProfileError, match=f"`{next(iter(wrong))}` must be"):
            Profile("p", **wrong)


def test_the_dump_has_every_key() -> None:
    assert dict(values_by_path(Profile("p"))).keys() == {
        k.key for k in key_facts() if "[" not in k.key
    }
    assert write(Profile("p", overrides=(Override("x", 4),)))["overrides"] == [
        {"match": "x", "weight": 4}
    ]
    assert dict(values_by_path(load_profile("int32-bias")))["bits.internal"] is None


@pytest.mark.parametrize("name", TABLES)
def test_tables_in_the_documentation_are_those_of_the_declarations(name) -> None:
    pages = [p for p in DOCS.glob("*.md") if f"<!-- table: {name} -->" in p.read_text()]
    assert pages
    for page in pages:
        assert with_tables(page.read_text()) == page.read_text(), "run make golden"
        for line in TABLES[name]().splitlines():
            assert line in page.read_text()


def test_a_wrong_table_is_written_again() -> None:
    page = "before\n<!-- table: steps of a plan -->\nstale\n<!-- end of table -->\nafter\n"
    new = with_tables(page)
    assert new.startswith("before\n") and new.endswith("<!-- end of table -->\nafter\n")
    assert "stale" not in new and "`reconstruct`" in new and with_tables(new) == new
    assert with_tables(page.replace("stale\n", "")) == new
    with pytest.raises(ValueError, match="table `steps of a plan` has no `<!-- end of table -->`"):
        with_tables(page.replace("end of", "end"))
