"""Sums that gates make and take, as in recurrent cells: they keep the bits of the internal stage.

A cell state is a sum of products with gates, and part of the next one: with few bits it
would lose a little in each one. The argument of a gate is a sum of layers, which are requantized
once, to the indices of its table, not each of them before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.linear import COMPUTE
from qgraph.rewrite.counts import is_inverse_of_count

SUMS = ("add", "sub")


@dataclass(frozen=True)
class Gates:
    """Names of sums, moves, products and selects that take the bits of the internal stage."""

    sums: frozenset[str]
    moves: frozenset[str]
    products: frozenset[str]
    choices: frozenset[str]


def gates_of(graph: Graph) -> Gates:
    """The sums around the gates of a graph, and what leads to them."""
    order = graph.topological()
    products = {n.name for n in order if n.op == "mul" and _has_gate(graph, n)}
    arguments = _leading_to(graph, order, lambda node: op_definition(node.op).pointwise)
    sums = {
        node.name
        for node in order
        if node.op in SUMS
        and (
            all(node_of(v) in products for v in node.inputs)
            or (node.name in arguments and all(_is_of_layer(graph, v) for v in node.inputs))
        )
    }
    products &= _leading_to(graph, order, lambda node: node.name in sums)
    products |= {node.name for node in order if node.op == "mul" and _has_count(graph, node)}
    before = _leading_to(graph, order, lambda node: node.name in sums | products)
    moves = {name for name in before if op_definition(graph.nodes[name].op).moves}
    choices = _choices(graph, order, sums | products)
    return Gates(frozenset(sums), frozenset(moves), frozenset(products), choices)


def _choices(graph: Graph, order: Sequence[Node], ends: Collection[str]) -> frozenset[str]:
    """Selects whose result a sum or product takes, or another such select."""
    found: set[str] = set()
    for node in order[::-1]:
        users = graph.users(node.name) if node.op == "select" else ()
        if any(user.name in ends or user.name in found for user in users):
            found.add(node.name)
    return frozenset(found)


def _has_gate(graph: Graph, node: Node) -> bool:
    """Whether one factor of a product is the result of a table, and none is constant."""
    if any(graph.constant(value) is not None for value in node.inputs):
        return False
    return any(op_definition(_origin(graph, v).op).pointwise for v in node.inputs)


def _has_count(graph: Graph, node: Node) -> bool:
    """Whether a product divides by a number of elements: a mean, whose sum needs more bits."""
    return any(is_inverse_of_count(_origin(graph, value)) for value in node.inputs)


def _origin(graph: Graph, value: str) -> Node:
    """The node whose result moves lead to `value`."""
    node = graph.producer(value)
    while op_definition(node.op).moves and len(node.inputs) == 1:
        node = graph.producer(node.inputs[0])
    return node


def _leading_to(
    graph: Graph, order: Sequence[Node], is_end: Callable[[Node], bool]
) -> frozenset[str]:
    """Nodes from which moves and biases lead to nodes of a kind, and nothing to others."""
    found: set[str] = set()
    for node in order[::-1]:
        users = [user for value in node.values for user in graph.users(value)]
        leaves = any(graph.is_output(value) for value in node.values)
        if users and not leaves and all(is_end(u) or u.name in found for u in users):
            passes = [u for u in users if not is_end(u)]
            if all(op_definition(u.op).moves or u.op == "bias_add" for u in passes):
                found.add(node.name)
    return frozenset(found)


def _is_of_layer(graph: Graph, value: str) -> bool:
    """Whether a value comes from a layer, through biases, moves and products with gates."""
    node = graph.producer(value)
    while node.inputs and (node.op == "bias_add" or op_definition(node.op).moves):
        node = graph.producer(node.inputs[0])
    if node.op in SUMS:
        return all(_is_of_layer(graph, v) for v in node.inputs)
    if node.op == "mul":
        return any(_is_of_layer(graph, v) for v in node.inputs)
    return node.op in COMPUTE
