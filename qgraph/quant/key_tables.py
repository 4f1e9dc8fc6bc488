"""Declarations of the keys of profiles and plans, as data for JSON and as Markdown tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from types import MappingProxyType
from typing import Any

from qgraph.quant.keys import Declared
from qgraph.quant.plan import NO, plan_steps, step_name, usage
from qgraph.quant.profile import profile_keys

# Names of the tables in docs/, each between `<!-- table: NAME -->` and `<!-- end of table -->`.
BEGIN, END = "<!-- table: {} -->\n", "<!-- end of table -->"


def plain_text(value: Any) -> str:
    """Plain data as YAML on one line."""
    return value if isinstance(value, str) and value else json.dumps(value)


def key_facts() -> list[dict[str, Any]]:
    """Every key of a profile: type, values, default and meaning."""
    return [_facts(found) for found in profile_keys()]


def plan_facts() -> list[dict[str, Any]]:
    """Every step of a plan: type, values, default and meaning."""
    return [
        {
            **_facts(step),
            "key": step_name(step),
            "usage": usage(step),
            "default_text": plain_text(step.default or NO),
        }
        for step in plan_steps()
    ]


def _facts(found: Declared) -> dict[str, Any]:
    required = found.default is MISSING
    default = None if required else found.default
    plain = None if default is None else found.key.type.write(default)
    unset = found.key.type.unset
    return {
        "key": found.path,
        **found.key.type.facts,
        "values": found.key.type.usage,
        "default": plain,
        "default_text": "" if required else plain_text(plain),
        "meaning": found.key.meaning + (f"; null: {unset}" if unset else ""),
    }


def profile_table() -> str:
    """The keys of a profile as a Markdown table."""
    rows = [
        (f"`{k['key']}`", _code(k["default_text"]), k["values"], k["meaning"]) for k in key_facts()
    ]
    return markdown_table(("key", "default", "values", "meaning"), rows)


def plan_table() -> str:
    """The steps of a plan as a Markdown table."""
    rows = [
        (f"`{s['usage']}`".replace("|", "\\|"), _code(s["default_text"]), s["meaning"])
        for s in plan_facts()
    ]
    return markdown_table(("step", "default", "meaning"), rows)


TABLES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {"keys of a profile": profile_table, "steps of a plan": plan_table}
)


def with_tables(page: str, tables: Mapping[str, Callable[[], str]] = TABLES) -> str:
    """A page of documentation with its marked tables generated from the declarations."""
    for name, table in tables.items():
        begin = BEGIN.format(name)
        before, found, rest = page.partition(begin)
        if found:
            _, end, after = rest.partition(END)
            if not end:
                raise ValueError(f"table `{name}` has no `{END}`")
            page = f"{before}{begin}\n{table()}\n{END}{after}"
    return page


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; texts must not contain `|` unless it is escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
