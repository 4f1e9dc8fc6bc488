"""Recognise softmaxes that a graph writes out in arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.attributes import AxesAttrs, AxisAttrs
from qgraph.ir.types import Shape
from qgraph.passes import RewritePass
from qgraph.rewrite.rewriter import Rewriter, Rule

RESHAPES = ("reshape", "expand_dims", "squeeze", "identity")


@dataclass(frozen=True)
class RecognizeSoftmax(RewritePass):
    """exp(x) / sum(exp(x)) over the last axis becomes `softmax`, also where x has its largest
    element subtracted first; x - log(sum(exp(x))) and the logarithm of a softmax, `log_softmax`.

    JAX and some exporters to ONNX write softmaxes like this. Outputs behind a recognized one are
    compared at its input. Softmaxes over other axes stay as they are. Refusal: a node with control
    edges.
    """

    name: ClassVar[str] = "recognize-softmax"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("written-out", ("div", "mul"), _softmax),
            Rule("written-out-log", ("sub",), _log_softmax),
            Rule("log", ("log",), _log_of_softmax),
        )


def _softmax(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    exponential = next((v for v in node.inputs if graph.producer(v).op == "exp"), None)
    if exponential is None or not _divides(graph, node, exponential):
        return False
    return _put(rewriter, node, "softmax", graph.producer(exponential).inputs[0])


def _log_softmax(rewriter: Rewriter, node: Node) -> bool:
    graph, (x, logarithm) = rewriter.graph, node.inputs
    whole = graph.types[x].shape
    if not whole or graph.types[logarithm].shape != (*whole[:-1], 1):
        return False
    log = _behind_reshapes(graph, logarithm, whole[:-1])
    total = _behind_reshapes(graph, log.inputs[0], whole[:-1]) if log.op == "log" else log
    if total is log or total.op != "sum":
        return False
    exponential = graph.producer(total.inputs[0])
    if (exponential.op, exponential.inputs) != ("exp", (x,)):
        return False
    return _reduces(graph, total, exponential.name) and _put(rewriter, node, "log_softmax", x)


def _log_of_softmax(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    softmax, rank = graph.producer(node.inputs[0]), graph.types[node.name].rank
    if softmax.op != "softmax" or rank is None:
        return False
    if softmax.typed(AxisAttrs).axis % rank != rank - 1:
        return False
    return _put(rewriter, node, "log_softmax", softmax.inputs[0])


def _put(rewriter: Rewriter, node: Node, op: str, shifted: str) -> bool:
    """`node` becomes a softmax, or its logarithm, of `shifted` before its shift."""
    graph = rewriter.graph
    source = _unshifted(graph, shifted)
    if graph.types[source] != graph.types[node.name]:
        return False
    if node.control or graph.control_users(node.name):
        return rewriter.refuse(node, "it has control edges")
    return rewriter.put(Node(node.name, op, (source,), {"axis": -1}))


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
    node = _behind_reshapes(graph, value, whole[:-1])
    return node.op == op and _reduces(graph, node, source)


def _behind_reshapes(graph: Graph, value: str, rows: Shape) -> Node:
    """The producer of one number for each of `rows`, before moves that only add or remove axes."""
    node = graph.producer(value)
    while node.op in RESHAPES and graph.types[node.name].shape in ((*rows, 1), rows):
        node = graph.producer(node.inputs[0])
    return node


def _reduces(graph: Graph, node: Node, source: str) -> bool:
    """Whether a reduction takes `source` and reduces its last axis only."""
    rank = graph.types[source].rank or 0
    axes = tuple(axis % rank for axis in node.typed(AxesAttrs).axes) if rank else ()
    return node.inputs[0] == source and axes == (rank - 1,)
