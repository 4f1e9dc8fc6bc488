"""`qgraph passes`: show the recipes, their passes in order, and the options of passes."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass
from inspect import getdoc
from typing import TYPE_CHECKING, get_type_hints

from qgraph.cli.options import Json

if TYPE_CHECKING:
    from qgraph.passes import Pass
    from qgraph.records import Object


def passes(as_json: Json = False) -> None:
    """Show the recipes, their passes in order, and the options of passes."""
    from qgraph.cli.console import console, print_table
    from qgraph.pass_text import PASSES
    from qgraph.recipes import FLOAT, OPTIONAL, RECIPES

    if as_json:
        recipes = {**RECIPES, "optional": OPTIONAL}
        print(json.dumps({name: [*map(_facts, recipe)] for name, recipe in recipes.items()}))
        return
    for name, recipe in RECIPES.items():
        shared = len(FLOAT) if recipe is not FLOAT and recipe[: len(FLOAT)] == FLOAT else 0
        rows = [
            (str(number), step.name, _summary(type(step)))
            for number, step in enumerate(recipe[shared:], start=shared + 1)
        ]
        if shared:
            rows.insert(0, (f"1-{shared}", "...", "as in recipe float"))
        print_table(f"recipe {name}", (">#", "=pass", "what it does"), rows)
    print_table(
        "in recipe static where --plan, --effort or the profile asks for it",
        ("=pass", "what it does"),
        [(step.name, _summary(type(step))) for step in OPTIONAL],
    )
    print_table(
        "options, written in braces: equalize-channels{powers-of-two=true}",
        ("=pass", "=option", "default", "legal", "meaning"),
        [
            (kind.name, o.name, o.default or "-", o.legal, o.meaning)
            for kind in PASSES.values()
            for o in _options(kind)
        ],
    )
    out = console()
    out.print("what each would do to a model: qgraph inspect MODEL", soft_wrap=True)
    out.print(
        "other passes, or passes of your own: --passes float,equalize-channels,module:Class",
        soft_wrap=True,
    )


@dataclass(frozen=True)
class PassOption:
    """An option of a pass, from its field. An option whose default is None is required."""

    name: str
    default: str | None
    legal: str
    meaning: str


def _facts(step: Pass) -> Object:
    from qgraph.records import to_json

    return {
        "name": step.name,
        "text": str(step),
        "summary": _summary(type(step)),
        "options": to_json(_options(type(step))),
        "requires": sorted(step.requires),
        "ensures": sorted(step.ensures),
    }


def _options(kind: type[Pass]) -> list[PassOption]:
    from qgraph.option_text import default_of, option_name, options_of
    from qgraph.pass_text import CODEC, legal_values
    from qgraph.passes import declared

    types, found = get_type_hints(kind), []
    for field in options_of(kind):
        default, about = default_of(field), declared(field)
        found.append(
            PassOption(
                option_name(field.name),
                None if default is MISSING else CODEC.write(default),
                about.range or legal_values(types[field.name]),
                about.meaning,
            )
        )
    return found


def _summary(kind: type[Pass]) -> str:
    return " ".join((getdoc(kind) or "").split("\n\n")[0].split())
