"""Tables in the documentation that are made from the configs of RL algorithms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from qgraph.quant.key_tables import markdown_table
from qgraph.rl.agents import AGENTS, LearnerPrecision, RunConfig, config_class
from qgraph.rl.agents.declared_field import DeclaredField
from qgraph.rl.agents.registry import config_classes
from qgraph.rl.agents.setting import Panel

# Settings that all algorithms have.
ALIKE = (Panel.RUN, Panel.ACTORS, Panel.BITS, Panel.COMPRESSION)


def algorithms_table() -> str:
    """Each algorithm with a link to its README, and what it learns from."""
    rows = [
        (
            f"[{kind.title}](../qgraph/rl/agents/{kind.algorithm}/README.md)",
            f"`{kind.algorithm}`",
            ", ".join(_kinds_of_actions(kind)),
            "vectors, images" if kind.images else "vectors",
            ", ".join(f"`{precision}`" for precision in kind.precisions),
        )
        for kind in config_classes()
    ]
    return markdown_table(("algorithm", "name", "actions", "observations", "precision"), rows)


def _kinds_of_actions(kind: type[RunConfig]) -> list[str]:
    chooses = {"one of several": kind.discrete_actions, "numbers": kind.continuous_actions}
    return [words for words, whether in chooses.items() if whether]


def settings_table(algorithm: str) -> str:
    """The settings of learning, exploration and replay of an algorithm, and its own."""
    kind = config_class(algorithm)
    fields = sorted(
        (each for each in kind.fields().values() if each.setting.panel not in ALIKE),
        key=lambda each: each.setting.panel is not Panel.ALGORITHM,
    )
    rows = [
        (f"`{each.name}`", _default(kind, each), _values(kind, each), each.setting.help)
        for each in fields
    ]
    return markdown_table(("setting", "default", "values", "meaning"), rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "algorithms": algorithms_table,
    **{f"settings of {name}": partial(settings_table, name) for name in AGENTS},
}


def _default(kind: type[RunConfig], each: DeclaredField) -> str:
    """The algorithm's default, and the defaults of tasks that differ."""
    default = each.setting.default_text or f"`{_text(each.default)}`"
    by_task = [
        f"`{_text(values[each.name])}` for `{task}`"
        for task, values in kind.tasks.items()
        if each.name in values
    ]
    return "; ".join([default, *by_task])


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _values(kind: type[RunConfig], each: DeclaredField) -> str:
    if each.kind is LearnerPrecision:
        return ", ".join(f"`{precision}`" for precision in kind.precisions)
    if each.kind is bool:
        return "`true`, `false`"
    values = str(each.setting.interval or each.setting.unit)
    return f"a list, each {values}" if each.several and each.setting.interval else values
