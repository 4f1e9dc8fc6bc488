"""Recognise softmaxes that a graph writes out in arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.attributes import AxesAttrs
from qgraph.passes import RewritePass
from qgraph.rewrite.rewriter import Rewriter, Rule

RESHAPES = ("reshape", "expand_dims", "squeeze", "identity")


@dataclass(frozen=True)
class RecognizeSoftmax(RewritePass):
    """exp(x) / sum(exp(x)) over the last axis becomes `softmax`, also where x has its largest
    element subtracted first.

    JAX and some exporters to ONNX write softmaxes like this. A recognized one stays float as a
    whole, and outputs behind it are compared at its input. Softmaxes over other axes stay as they
    are. Refusal: a node with control edges.
    """

    name: ClassVar[str] = "recognize-softmax"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("written-out", ("div", "mul"), _softmax),)


def _softmax(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    exponential = next((v for v in node.inputs if graph.producer(v).op == "exp"), None)
    if exponential is None or not _divides(graph, node, exponential):
        return False
    if node.control or graph.control_users(node.name):
        return rewriter.refuse(node, "it has control edges")
    source = _unshifted(graph, graph.producer(exponential).inputs[0])
    if graph.types[source] != graph.types[node.name]:
        return False
    return rewriter.put(Node(node.name, "softmax", (source,), {"axis": -1}))


def _divides(graph: Graph, node: Node, exponential: str) -> bool:
    """Whether a node divides `exponential` by its own sum over the last axis."""
    other = node.inputs[1 - node.inputs.index(exponential)]
    if node.op == "mul":
        inverse = graph.producer(other)
        return inverse.op == "reciprocal" and _is_reduced(
            graph, inverse.inputs[0], "sum", exponential
        )
    return node.inputs[0] == exponential and _is_reduced(graph, other, "sum", exponential)


def _unshifted(graph: Graph, value: str) -> str:
    """x, if `value` is x less its largest element, which does not change a softmax."""
    node = graph.producer(value)
    if node.op != "sub" or not _is_reduced(graph, node.inputs[1], "reduce_max", node.inputs[0]):
        return value
    return node.inputs[0]


def _is_reduced(graph: Graph, value: str, op: str, source: str) -> bool:
    """Whether `value` is `source` reduced by `op` over the last axis, which stays with size 1."""
    whole = graph.types[source].shape
    if not whole or graph.types[value].shape != (*whole[:-1], 1):
        return False
    node = graph.producer(value)
    while node.op in RESHAPES and graph.types[node.name].shape in ((*whole[:-1], 1), whole[:-1]):
        node = graph.producer(node.inputs[0])
    if node.op != op or node.inputs[0] != source:
        return False
    return tuple(a % len(whole) for a in node.typed(AxesAttrs).axes) == (len(whole) - 1,)
