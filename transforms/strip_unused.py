"""Remove nodes that no output needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qgraph.passes import Pass
from qgraph.rewrite.rewriter import Rewriter


@dataclass(frozen=True)
class StripUnused(Pass):
    """Remove every node that no output needs, as data or as a control input.

    Inputs are part of the graph's interface and stay; an unused one is reported as a refusal.
    """

    name: ClassVar[str] = "strip-unused"

    def apply(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        needed = graph.ancestors(graph.outputs.values())
        for node in reversed(graph.topological().copy()):
            if node.name in needed:
                continue
            if node.op == "input":
                rewriter.refuse(node, "no output needs this input; it stays in the signature")
            else:
                rewriter.log(node, "removed")
                graph.remove(node.name)
