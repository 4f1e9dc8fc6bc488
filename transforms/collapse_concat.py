"""Replace a concat of concats by one concat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.passes import RewritePass
from qgraph.rewrite.constants import other_users
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class CollapseConcat(RewritePass):
    """A concat takes the members of a concat on the same axis directly.

    Refusal: the inner concat has other users.
    """

    name: ClassVar[str] = "collapse-concat"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("collapse", ("concat",), _collapse),)


def _axis(graph: Graph, node: Node) -> int:
    axis = node.typed(AxisAttrs).axis
    rank = graph.types[node.name].rank
    return axis % rank if rank else axis


def _collapse(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    for value in node.inputs:
        inner = graph.producer(value)
        if inner.op != "concat" or _axis(graph, inner) != _axis(graph, node):
            continue
        if users := other_users(graph, value, node.name):
            rewriter.refuse(node, f"cannot take the members of an inner concat: {users}")
            continue
        members = (inner.inputs if v == value else (v,) for v in node.inputs)
        return rewriter.put(replace(node, inputs=tuple(v for m in members for v in m)))
    return False
