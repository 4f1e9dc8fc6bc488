"""Indices as importers write them."""

from __future__ import annotations

from qgraph.ir.graph import Graph


def without_sign(graph: Graph, value: str) -> str:
    """The index from which a value counts negative ones from the end, if it is written so."""
    node = graph.producer(value)
    if node.op != "select":
        return value
    below, turned = (graph.producer(v) for v in node.inputs[:2])
    zero = graph.constant(below.inputs[0]) if below.op == "greater" else None
    index = node.inputs[2]
    is_sign = zero is not None and not zero.any() and below.inputs[1] == index
    return index if is_sign and turned.op == "add" and index in turned.inputs else value
