"""`qgraph passes`: the recipes and their passes, in order."""

from __future__ import annotations

import json
from inspect import getdoc

from qgraph.cli.options import Json


def passes(as_json: Json = False) -> None:
    """Show the recipes and their passes, in order."""
    from qgraph.recipes import RECIPES

    from qgraph.cli.console import console, table
    from qgraph.passes import Pass

    def summary(step: Pass) -> str:
        return (getdoc(type(step)) or "").split("\n\n")[0].replace("\n", " ")

    if as_json:
        shown = {
            name: [{"name": s.name, "options": str(s), "summary": summary(s)} for s in recipe]
            for name, recipe in RECIPES.items()
        }
        print(json.dumps(shown, indent=1))
        return
    for name, recipe in RECIPES.items():
        listing = table(f"recipe {name}", ">#", "pass", "what it does")
        for number, step in enumerate(recipe, start=1):
            listing.add_row(str(number), step.name, summary(step))
        console().print(listing, "")
