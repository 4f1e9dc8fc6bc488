"""`qgraph profiles`: show the built-in target profiles and the keys of a profile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import DEFAULT_PROFILE
from qgraph.cli.completion import complete_profile
from qgraph.cli.options import Json

if TYPE_CHECKING:
    from qgraph.quant.profile import Profile
    from qgraph.records import Object

ABOUT = ("name", "description")  # keys that describe a profile and change nothing


def profiles(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A built-in profile or a YAML file of your own.",
            autocompletion=complete_profile,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the target profiles and explain their keys. With NAME, show one profile.

    --profile of the other commands takes a profile. With NAME, the value of each key is shown, and
    keys that differ from the default profile, graffitist-int8, are marked.
    """
    if name is None:
        _list_all(as_json)
    else:
        _show_one(name, as_json)


def _list_all(as_json: bool) -> None:
    from qgraph.cli.console import console, print_table
    from qgraph.quant.key_tables import key_facts, plan_facts
    from qgraph.quant.profile import builtin_profiles, load_profile
    from qgraph.records import to_json

    found = [load_profile(name) for name in builtin_profiles()]
    keys, steps = key_facts(), plan_facts()
    if as_json:
        shown = [
            {"name": p.name, "description": p.description, "differs": _differing(p)} for p in found
        ]
        print(json.dumps({"profiles": shown, "keys": to_json(keys), "plan": to_json(steps)}))
        return
    print_table(
        "built-in profiles",
        ("=profile", "description"),
        [
            (p.name + (" (default)" if p.name == DEFAULT_PROFILE else ""), p.description)
            for p in found
        ],
    )
    print_table(
        "keys of a profile",
        ("=key", "default", "values", "meaning"),
        [(k.key, k.default_text, k.values, k.meaning) for k in keys],
    )
    print_table(
        "steps of a plan, as in --plan",
        ("=step", "default", "meaning"),
        [(s.usage, s.default_text, s.meaning) for s in steps],
    )
    console().print("one profile: qgraph profiles NAME, or a YAML file of your own")


def _show_one(name: str, as_json: bool) -> None:
    from qgraph.cli.console import console, print_table
    from qgraph.quant.key_tables import key_facts, plain_text
    from qgraph.quant.keys import values_by_path
    from qgraph.quant.profile import load_profile
    from qgraph.records import to_object

    profile = load_profile(name)
    values, differs = dict(values_by_path(profile)), _differing(profile)
    keys = [k for k in key_facts() if k.key in values]
    if as_json:
        about = {"name": profile.name, "description": profile.description}
        rows = [{**to_object(k), "value": values[k.key]} for k in keys]
        print(json.dumps({**about, "differs": differs, "keys": rows}))
        return
    print_table(
        f"profile {profile.name}" + (f": {profile.description}" if profile.description else ""),
        ("=key", "value", "default", "meaning"),
        [
            (
                ("* " if k.key in differs else "  ") + k.key,
                plain_text(values[k.key]),
                k.default_text,
                k.meaning,
            )
            for k in keys
            if k.key not in ABOUT
        ],
    )
    count = len(differs)
    same = f"no key differs from {DEFAULT_PROFILE}"
    marked = f"* {count} key{'s differ' if count > 1 else ' differs'} from {DEFAULT_PROFILE}"
    console().print(marked if differs else same)


def _differing(profile: Profile) -> Object:
    """The keys whose values differ from the default profile, except its name and description."""
    from qgraph.quant.keys import values_by_path
    from qgraph.quant.profile import load_profile

    usual = dict(values_by_path(load_profile(DEFAULT_PROFILE)))
    return {
        path: value
        for path, value in values_by_path(profile)
        if value != usual[path] and path not in ABOUT
    }
