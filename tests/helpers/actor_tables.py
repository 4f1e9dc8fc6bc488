"""The table of the ops of actors in docs/rl_actors.md, made from their definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from qgraph.ops.attributes import declarations
from qgraph.quant.key_tables import markdown_table
from qgraph.rl.actor.ops import ACTIVATIONS, OPS


def ops_table() -> str:
    rows = [
        (
            f"{op.code}",
            f"`{op.name}`",
            op.summary,
            _code(op.weights),
            _code(declared.name for declared in declarations(op.attributes)),
        )
        for op in OPS.values()
    ]
    columns = ("number", "op", "what it computes", "weights", "attributes")
    table = markdown_table(columns, rows)
    return f"{table}\nActivations, in the order of their numbers: {_code(ACTIVATIONS)}.\n"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


TABLES: Mapping[str, Callable[[], str]] = {"ops of actors": ops_table}
