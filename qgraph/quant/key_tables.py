"""Declarations of the keys of profiles and plans, as data for JSON and as Markdown tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from types import MappingProxyType

from qgraph.quant.key_types import TypeFacts
from qgraph.quant.keys import Declared
from qgraph.quant.plan import NO, plan_steps, step_name, usage
from qgraph.quant.profile import profile_keys
from qgraph.records import FLAT, JSON

# Names of the tables in docs/, each between `<!-- table: NAME -->` and `<!-- end of table -->`.
BEGIN, END = "<!-- table: {} -->\n", "<!-- end of table -->"


@dataclass(frozen=True)
class KeyFacts:
    """A key of a profile or a step of a plan: type, values, default and meaning."""

    key: str
    limits: TypeFacts = field(metadata=FLAT)
    values: str
    default: JSON
    default_text: str
    meaning: str


@dataclass(frozen=True)
class StepFacts(KeyFacts):
    """A step of a plan; `usage` is how it is written."""

    usage: str


def plain_text(value: JSON) -> str:
    """Plain data as YAML on one line."""
    return value if isinstance(value, str) and value else json.dumps(value)


def key_facts() -> list[KeyFacts]:
    """Every key of a profile."""
    return [_facts(found) for found in profile_keys()]


def plan_facts() -> list[StepFacts]:
    """Every step of a plan."""
    return [_step_facts(step) for step in plan_steps()]


def _step_facts(step: Declared) -> StepFacts:
    found = replace(_facts(step), key=step_name(step))
    found = replace(found, default_text=plain_text(found.default or NO))
    return StepFacts(**vars(found), usage=usage(step))


def _facts(found: Declared) -> KeyFacts:
    required = found.default is MISSING
    plain = None if required else found.plain(found.default)
    unset = found.key.type.unset
    return KeyFacts(
        key=found.path,
        limits=found.key.type.facts,
        values=found.key.type.usage,
        default=plain,
        default_text="" if required else plain_text(plain),
        meaning=found.key.meaning + (f"; null: {unset}" if unset else ""),
    )


def profile_table() -> str:
    """The keys of a profile as a Markdown table."""
    rows = [(f"`{k.key}`", _code(k.default_text), k.values, k.meaning) for k in key_facts()]
    return markdown_table(("key", "default", "values", "meaning"), rows)


def plan_table() -> str:
    """The steps of a plan as a Markdown table."""
    rows = [
        (f"`{s.usage}`".replace("|", "\\|"), _code(s.default_text), s.meaning) for s in plan_facts()
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
