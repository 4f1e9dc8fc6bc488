"""Find the values of a quantized graph that are integers, and the ops that run in float."""

from __future__ import annotations

from qgraph.ir.graph import Graph
from qgraph.ir.node import Node
from qgraph.quant.topology import QUANTIZERS, has_integer_form


def integer_values(graph: Graph) -> set[str]:
    """The values that the target computes in integers."""
    found: set[str] = set()
    for node in graph.topological():
        whole = bool(node.inputs) and all(v in found for v in node.inputs)
        if node.op in QUANTIZERS or (whole and has_integer_form(node)):
            found.add(node.name)
    return found


def float_nodes(graph: Graph) -> list[Node]:
    """The nodes that are computed in float for each sample, in the graph's order."""
    integer, varies = integer_values(graph), _values_of_inputs(graph)
    return [
        node
        for node in graph.topological()
        if node.op != "input" and node.name not in integer and node.name in varies
    ]


def float_between(graph: Graph) -> list[Node]:
    """Float nodes that depend on integer layers and that integer layers depend on.

    The integer program has a segment before them and another one behind them.
    """
    integer, varies = integer_values(graph), _values_of_inputs(graph)
    behind: set[str] = set()  # float values that depend on codes of the inputs
    for node in graph.topological():
        made_of_codes = any(v in behind or (v in integer and v in varies) for v in node.inputs)
        if made_of_codes and node.name not in integer:
            behind.update(node.values)
    before: set[str] = set()  # values that integer layers depend on
    for node in reversed(graph.topological()):
        if node.name in integer or not before.isdisjoint(node.values):
            before.update(node.inputs)
    found = behind & before
    return [node for node in graph.topological() if not found.isdisjoint(node.values)]


def _values_of_inputs(graph: Graph) -> set[str]:
    """The values that depend on an input; not constants and values computed from them."""
    found = set(graph.inputs)
    for node in graph.topological():
        if not found.isdisjoint(node.inputs):
            found.update(node.values)
    return found
