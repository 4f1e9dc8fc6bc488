"""Graphs to measure on, and the same graphs in networkx."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx
import numpy as np

from qgraph.frontends import load
from qgraph.ir.graph import Graph, node_of

ROOT = Path(__file__).resolve().parents[2]
NEAR = 8  # the largest distance from a node of a random graph to its inputs


def started() -> tuple[Graph, str]:
    graph = Graph()
    return graph, graph.input("x", "float32", (None, 8))


def skips(nodes: int) -> Graph:
    """A sequence of additions. Each adds the newest value and the one before it."""
    graph, newest = started()
    before = newest
    for _ in range(nodes - 1):
        before, newest = newest, graph.add("add", newest, before)
    graph.outputs["y"] = newest
    return graph


def cyclic(nodes: int) -> Graph:
    """The same with a cycle at its end: the first addition takes the last result."""
    graph = skips(nodes)
    graph.replace(replace(graph.nodes["add"], inputs=("x", graph.outputs["y"])))
    return graph


def swishes(nodes: int) -> Graph:
    """A sequence of `x * sigmoid(x)`."""
    graph, x = started()
    for _ in range(nodes // 2):
        x = graph.add("mul", x, graph.add("sigmoid", x))
    graph.outputs["y"] = x
    return graph


def random_graph(nodes: int) -> Graph:
    """Elementwise ops on recently computed values."""
    rng = np.random.default_rng(0)
    graph, x = started()
    values = [x]
    while len(graph.nodes) < nodes:
        a, b = (values[i] for i in rng.integers(max(0, len(values) - NEAR), len(values), 2))
        op = rng.choice(["relu", "sigmoid", "tanh", "add", "mul", "swish"])
        if op == "swish":
            values.append(graph.add("sigmoid", a))
            values.append(graph.add("mul", a, values[-1]))
        else:
            values.append(graph.add(str(op), *((a, b) if op in ("add", "mul") else (a,))))
    graph.outputs["y"] = values[-1]
    return graph


def digits() -> Graph:
    """The network of `examples/digits`."""
    return load(ROOT / "examples/digits/digits.pb")


def as_networkx(graph: Graph) -> networkx.DiGraph[str]:
    """A networkx graph: nodes with their ops, and edges from each node to the nodes that need
    it.
    """
    made: networkx.DiGraph[str] = networkx.DiGraph()
    made.add_nodes_from((node.name, {"op": node.op}) for node in graph.nodes.values())
    for node in graph.nodes.values():
        made.add_edges_from((node_of(value), node.name) for value in node.inputs)
        made.add_edges_from((needed, node.name) for needed in node.control)
    return made
