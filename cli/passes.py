"""`qgraph passes`: the recipes and their passes, in order."""

from __future__ import annotations

import json
from inspect import getdoc
from typing import TYPE_CHECKING

from qgraph.cli.options import Json

if TYPE_CHECKING:
    from qgraph.passes import Pass


def passes(as_json: Json = False) -> None:
    """Show the recipes and their passes, in order."""
    from qgraph.cli.console import console, print_table
    from qgraph.recipes import FLOAT, OPTIONAL, RECIPES

    if as_json:
        shown = {
            name: [{"name": s.name, "options": str(s), "summary": _summary(s)} for s in recipe]
            for name, recipe in {**RECIPES, "optional": OPTIONAL}.items()
        }
        print(json.dumps(shown))
        return
    for name, recipe in RECIPES.items():
        shared = len(FLOAT) if recipe is not FLOAT and recipe[: len(FLOAT)] == FLOAT else 0
        rows = [
            (str(number), step.name, _summary(step))
            for number, step in enumerate(recipe[shared:], start=shared + 1)
        ]
        if shared:
            rows.insert(0, (f"1-{shared}", "...", "as in recipe float"))
        print_table(f"recipe {name}", (">#", "=pass", "what it does"), rows)
    print_table(
        "in recipe static where --plan, --effort or the profile asks for it",
        ("=pass", "what it does"),
        [(step.name, _summary(step)) for step in OPTIONAL],
    )
    console().print("what each would do to a model: qgraph inspect MODEL")


def _summary(step: Pass) -> str:
    return " ".join((getdoc(type(step)) or "").split("\n\n")[0].split())
