"""Recognise activations that a graph writes out in arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qgraph.ir.graph import Node
from qgraph.passes import Pass
from qgraph.rewrite.functions import AFFINE, KnownFunctions, PointwiseFunction, functions_at
from qgraph.rewrite.rewriter import Rewriter


@dataclass(frozen=True)
class RecognizeActivations(Pass):
    """Replace arithmetic that computes an activation by the activation, whatever its form.

    Functions are recognised by their values: elementwise arithmetic from a tensor to a result is
    evaluated in float64 and compared with every named activation (`qgraph.rewrite.functions`). They
    have to be equal up to rounding in the graph's dtype, since constants are rounded too: 1/6 is
    the float32 next to 1/6.
    """

    name: ClassVar[str] = "recognize-activations"

    def apply(self, rewriter: Rewriter) -> None:
        rewriter.rule = "recognize"
        graph, known = rewriter.graph, KnownFunctions.all()
        nodes = list(graph.topological())
        order = {node.name: index for index, node in enumerate(nodes)}
        for node in nodes:
            if node.name not in graph.nodes or node.op == "const":
                continue
            found = None
            for function in functions_at(graph, node.name, order):
                made = self._named(known, function, graph.types[node.name].dtype)
                found = (function.source, *made) if made is not None else found
            if found is not None:  # the first one replaces the most arithmetic
                source, op, attrs = found
                rewriter.put(Node(node.name, op, (source,), attrs, node.control))

    def _named(
        self, known: KnownFunctions, function: PointwiseFunction, dtype: str
    ) -> tuple[str, dict[str, object]] | None:
        if function.nodes[0].op == "bias_add":  # part of the layer before, and trained with it
            return None
        ops = {op for op, _, _ in function.steps}
        if ops <= AFFINE or (len(function.steps) == 1 and ops.isdisjoint({"maximum", "composed"})):
            return None
        return known.name_of(function, dtype)
