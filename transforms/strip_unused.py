"""Remove what no output needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qgraph.ir.graph import node_of
from qgraph.passes import Pass
from qgraph.rewrite.rewriter import Rewriter


@dataclass(frozen=True)
class StripUnused(Pass):
    """Remove every node that no output needs, as data or as a control input.

    Inputs are part of the graph's interface and stay; one that is not used is a refusal.
    """

    name: ClassVar[str] = "strip-unused"

    def apply(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        needed: set[str] = set()
        waiting = [node_of(value) for value in graph.outputs.values()]
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                node = graph.nodes[name]
                waiting += [*map(node_of, node.inputs), *node.control]
        for node in reversed(graph.topological().copy()):
            if node.name in needed:
                continue
            if node.op == "input":
                rewriter.refuse(node, "no output needs this input; it stays in the signature")
            else:
                rewriter.log(node, "removed")
                graph.remove(node.name)
