"""Write logarithms of softmaxes in ops that fixed point can compute."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.ops.composed import Steps
from qgraph.ir.ops.pool import ReductionAttrs
from qgraph.ir.ops.structure import OpaqueAttrs
from qgraph.passes import RewritePass
from qgraph.quant.topology import before_layers, behind_layers
from qgraph.rewrite.rewriter import Rewriter, Rule

# exp(-d), as one function: a negation of its own would be rounded.
POWER: Steps = (("neg", (0,), ()), ("exp", (1,), ()))


@dataclass(frozen=True)
class LowerLogSoftmax(RewritePass):
    """A log-softmax between layers becomes -log(sum(exp(-d))) - d, where d is the distance of an
    element from the largest one.

    The sum is at least 1, and so is that of log(sum(exp(x - max(x)))), which files write out:
    maximum(sum, 1) keeps the logarithm away from 0, where no table can hold it. TensorFlow takes 0
    in place of a largest element that is infinite; between layers none is.
    """

    name: ClassVar[str] = "lower-log-softmax"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("log-softmax", ("log_softmax",), _log_softmax),
            Rule("finite", ("select",), _finite),
            Rule("log-of-sum", ("log",), _log_of_sum),
        )


def _log_softmax(rewriter: Rewriter, node: Node) -> bool:
    if not _is_between_layers(rewriter.graph, node):
        return False
    if node.control:
        return rewriter.refuse(node, "it has control edges")

    def add(what: str, op: str, *inputs: str, **attrs: object) -> str:
        return rewriter.add(op, *inputs, name=f"{node.name}/{what}", attrs=attrs)

    x, row = node.inputs[0], {"axes": (node.typed(AxisAttrs).axis,), "keepdims": True}
    below = add("below", "sub", add("largest", "reduce_max", x, **row), x)
    distance = add("distance", "relu", below)
    powers = add("powers", "composed", distance, steps=POWER)
    log = add("log", "log", _at_least_one(rewriter, node, add("total", "sum", powers, **row)))
    return rewriter.put(
        Node(node.name, "sub", (add("share", "neg", log), distance), control=node.control)
    )


def _finite(rewriter: Rewriter, node: Node) -> bool:
    """The largest element, or 0 if it is infinite."""
    graph, (condition, largest, zero) = rewriter.graph, node.inputs
    test, other = graph.producer(condition), graph.constant(zero)
    is_test = isinstance(test.attributes, OpaqueAttrs) and test.attributes.kind == "IsFinite"
    if not is_test or test.inputs != (largest,) or other is None or other.any():
        return False
    if graph.producer(largest).op != "reduce_max" or not _is_between_layers(graph, node):
        return False
    return rewriter.replace_value(node.name, largest)


def _log_of_sum(rewriter: Rewriter, node: Node) -> bool:
    """log(sum(exp(x - max(x)))), with both reductions over the same axes."""
    graph = rewriter.graph
    total = graph.producer(node.inputs[0])
    exponential = graph.producer(total.inputs[0]) if total.op == "sum" else total
    below = graph.producer(exponential.inputs[0]) if exponential.op == "exp" else total
    if below.op != "sub" or not _is_between_layers(graph, node):
        return False
    largest, rank = graph.producer(below.inputs[1]), graph.types[below.name].rank
    if largest.op != "reduce_max" or largest.inputs != below.inputs[:1] or rank is None:
        return False
    axes = [
        {axis % rank for axis in reduction.typed(ReductionAttrs).axes}
        for reduction in (total, largest)
    ]
    if axes[0] != axes[1] or not largest.typed(ReductionAttrs).keepdims:
        return False
    safe = _at_least_one(rewriter, node, total.name)
    return rewriter.put(replace(node, inputs=(safe,)))


def _at_least_one(rewriter: Rewriter, node: Node, value: str) -> str:
    kind = np.dtype(rewriter.graph.types[value].dtype)
    one = rewriter.const(np.ones((), kind), f"{node.name}/one")
    return rewriter.add("maximum", value, one, name=f"{node.name}/safe")


def _is_between_layers(graph: Graph, node: Node) -> bool:
    return node.name in before_layers(graph) & behind_layers(graph)
