"""The integer reference: which values it watches."""

import numpy as np

from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from tests.exact.test_bounds import integers


def test_watched_values_are_quantized_activations_and_outputs():
    g = Graph("watched")
    x = integers(g, g.input("x", "float32", (None, 2)), 8)
    w = integers(g, g.const(np.ones((2, 3), np.float32)), 8, role="weight")
    total = g.add("matmul", x, w, name="total")
    narrow = integers(g, total, 8, role="activation")
    g.outputs["y"] = g.add("relu", narrow, name="positive")
    g.facts.add("calibrated")
    assert Reference(g).watched() == [x, narrow, "positive"]
