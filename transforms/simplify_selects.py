"""Write selects with the smallest condition, and equal ones once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.reading import kind_of
from qgraph.ops.movement import TakeAttrs
from qgraph.passes import RewritePass
from qgraph.quant.topology import behind_layers
from qgraph.rewrite.rewriter import Rewriter, Rule

RESHAPES = ("expand_dims", "squeeze", "reshape")


@dataclass(frozen=True)
class SimplifySelects(RewritePass):
    """Remove what a select does not need: copies of its condition along an axis, a negation, a part
    that always holds; and repeated selects. A product with a condition that no layer computes
    becomes a select.

    Keras copies the mask of a time step to all units of each state, and selects the output of a
    recurrent layer and its state separately, though both are equal. Refusal: control edges.
    """

    name: ClassVar[str] = "simplify-selects"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("product", ("mul",), _product),
            Rule("copies", ("select",), _copies),
            Rule("always", ("select",), _always),
            Rule("negation", ("select",), _negation),
            Rule("repetition", ("select",), _repetition),
        )


def _product(rewriter: Rewriter, node: Node) -> bool:
    """A product with a condition as a number selects between a value and 0."""
    graph = rewriter.graph
    for value, number in (node.inputs, node.inputs[::-1]):
        kind = graph.types[value]
        if not kind.is_float or not _is_condition(graph, number):
            continue
        if node_of(number) in behind_layers(graph):  # a table of 0 and 1, and a product of codes
            continue
        if kind == graph.types[node.name] and graph.constant(value) is None:
            zero = rewriter.const(np.zeros((), kind.dtype), f"{node.name}/zero")
            made = (_condition(rewriter, number), value, zero)
            return rewriter.put(Node(node.name, "select", made, control=node.control))
    return False


def _is_condition(graph: Graph, value: str) -> bool:
    """Whether a value is a condition as a number, perhaps in another shape."""
    node = graph.producer(value)
    while node.op in RESHAPES:
        node = graph.producer(node.inputs[0])
    return node.op == "cast" and graph.types[node.inputs[0]].dtype == "bool"


def _condition(rewriter: Rewriter, value: str) -> str:
    """The condition that a value is as a number."""
    node = rewriter.graph.producer(value)
    if node.op == "cast":
        return node.inputs[0]
    source, name = _condition(rewriter, node.inputs[0]), f"{node.name}/condition"
    return rewriter.add(node.op, source, name=name, attrs=node.attrs)


def _copies(rewriter: Rewriter, node: Node) -> bool:
    """A select broadcasts its condition."""
    graph, (condition, yes, no) = rewriter.graph, node.inputs
    copies = graph.producer(condition)
    if copies.op != "take" or set(copies.typed(TakeAttrs).indices) != {0}:
        return False
    source = copies.inputs[0]
    shape, axis = graph.types[source].shape, copies.typed(TakeAttrs).axis
    made = replace(node, inputs=(source, yes, no))
    if shape is None or shape[axis] != 1 or graph.infer(made) != (graph.types[node.name],):
        return False
    return rewriter.put(made)


def _always(rewriter: Rewriter, node: Node) -> bool:
    """A condition and one that always holds, which Keras 3 makes for the shape of attention."""
    graph, (condition, yes, no) = rewriter.graph, node.inputs
    joined = graph.producer(condition)
    for other, always in (joined.inputs, joined.inputs[::-1]) if joined.op == "logical_and" else ():
        made = replace(node, inputs=(other, yes, no))
        if _holds(graph, always) and graph.infer(made) == (graph.types[node.name],):
            return rewriter.put(made)
    return False


def _holds(graph: Graph, value: str) -> bool:
    """Whether a condition holds everywhere."""
    node = graph.producer(value)
    filled = node.op == "opaque" and kind_of(node) == "Fill"
    known = graph.constant(node.inputs[1] if filled else value)
    return known is not None and bool(known.all())


def _negation(rewriter: Rewriter, node: Node) -> bool:
    condition, yes, no = node.inputs
    negation = rewriter.graph.producer(condition)
    if negation.op != "logical_not":
        return False
    return rewriter.put(replace(node, inputs=(negation.inputs[0], no, yes)))


def _repetition(rewriter: Rewriter, node: Node) -> bool:
    """An equal select that is older takes the place of this one."""
    graph = rewriter.graph
    for other in graph.users(node.inputs[0]):
        if other.name == node.name:
            return False
        if other.op == "select" and all(
            _equal(graph, a, b) for a, b in zip(node.inputs, other.inputs, strict=True)
        ):
            if node.control or other.control or graph.control_users(node.name):
                return rewriter.refuse(node, "it has control edges")
            return rewriter.replace_value(node.name, other.name)
    return False


def _equal(graph: Graph, one: str, other: str) -> bool:
    """Whether two values are the same, or equal constants."""
    if one == other:
        return True
    first, second = graph.constant(one), graph.constant(other)
    if first is None or second is None or graph.types[one] != graph.types[other]:
        return False
    return np.array_equal(first, second)
