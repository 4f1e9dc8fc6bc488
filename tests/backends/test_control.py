"""Control edges reach the emitted graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.ir.graph import Graph


def test_a_control_edge_is_written() -> None:
    graph = Graph("g")
    x = graph.input("x", "float32", (None, 2))
    first, second = graph.add("relu", x), graph.add("tanh", x)
    graph.replace(replace(graph.nodes[second], control=(first,)))
    graph.outputs["y"] = second
    graph_def = emit_graph_def(graph)
    node = next(n for n in graph_def.node if n.op == "Tanh")
    assert list(node.input) == ["x", f"^{first}"]
    (y,) = TFProgram(graph_def).run({"x": np.zeros((1, 2), np.float32)}, ["y"])
    assert y.tolist() == [[0.0, 0.0]]
