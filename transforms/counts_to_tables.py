"""Divisions by the number of elements that a mask keeps, as products with a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.passes import RewritePass
from qgraph.rewrite.counts import INVERSE_OF_COUNT
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class CountsToTables(RewritePass):
    """x / sum(mask) becomes x * f(sum(mask)), as in a mean over the steps that a mask keeps.

    f is a function of one number, so it may become a table: 1 / max(count, 1). Where a mask keeps
    nothing, the mean is 0, not NaN.
    """

    name: ClassVar[str] = "counts-to-tables"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("count", ("div",), _convert),)


def _convert(rewriter: Rewriter, node: Node) -> bool:
    x, count = node.inputs
    if not _is_count(rewriter.graph, count) or not rewriter.graph.types[x].is_float:
        return False
    attrs = {"steps": INVERSE_OF_COUNT}
    inverse = rewriter.add("composed", count, name=f"{node.name}/inverse", attrs=attrs)
    return rewriter.put(Node(node.name, "mul", (x, inverse), control=node.control))


def _is_count(graph: Graph, value: str) -> bool:
    """Whether a value is the sum of conditions as numbers, both perhaps moved."""
    total = _before_moves(graph, value)
    if total.op != "sum":
        return False
    number = _before_moves(graph, total.inputs[0])
    return number.op == "cast" and graph.types[number.inputs[0]].dtype == "bool"


def _before_moves(graph: Graph, value: str) -> Node:
    node = graph.producer(value)
    while op_definition(node.op).moves and len(node.inputs) == 1:
        node = graph.producer(node.inputs[0])
    return node
