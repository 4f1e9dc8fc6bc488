"""A graph in another float type: what a check of a transform at full precision runs on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import TensorType

FLOATS = ("float16", "float32", "float64")


def cast_floats(graph: Graph, dtype: str) -> Graph:
    """A copy of `graph` whose float inputs, constants and results are all of `dtype`.

    Ops that are not understood know only the types of their source: they keep them, between casts.
    """
    made = Graph(graph.name)
    made.facts = set(graph.facts)
    for node in graph.topological():
        if node.op == "opaque":
            _keep_types(graph, made, node, dtype)
        else:
            made.insert(replace(node, attrs=_attrs(node, dtype)))
    made.inputs = list(graph.inputs)
    made.outputs = dict(graph.outputs)
    return made


def _attrs(node: Node, dtype: str) -> dict[str, Any]:
    attrs = dict(node.attrs)
    if node.op == "input" and attrs["type"].dtype in FLOATS:
        attrs["type"] = TensorType(dtype, attrs["type"].shape)
    if node.op == "const" and attrs["value"].dtype.name in FLOATS:
        attrs["value"] = attrs["value"].astype(dtype)
    if node.op == "cast" and attrs["dtype"] in FLOATS:
        attrs["dtype"] = dtype
    return attrs


def _keep_types(graph: Graph, made: Graph, node: Node, dtype: str) -> None:
    inputs = tuple(_cast(made, v, graph.types[v].dtype, f"{v}/as_it_was") for v in node.inputs)
    if node.outputs > 1 or graph.types[node.name].dtype not in FLOATS:
        made.insert(replace(node, inputs=inputs))
        return
    own = replace(node, name=made.fresh(f"{node.name}/as_it_was"), inputs=inputs, control=())
    made.insert(own)
    made.insert(Node(node.name, "cast", (own.name,), {"dtype": dtype}, node.control))


def _cast(made: Graph, value: str, dtype: str, name: str) -> str:
    if made.types[value].dtype == dtype:
        return value
    return made.add("cast", value, name=name, attrs={"dtype": dtype})
