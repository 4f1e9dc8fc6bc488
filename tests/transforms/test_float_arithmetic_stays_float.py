"""InsertQuantizers leaves arithmetic on float results alone: an epsilon would round to nothing."""

import numpy as np

from qgraph.compiler import quantize
from qgraph.ir.graph import Graph
from tests.helpers.evaluate import reasons
from tests.helpers.layers import WINDOW


def decibels() -> Graph:
    """conv -> square -> + 1e-10 -> log -> * 4 -> + bias -> relu -> conv."""
    graph, rng = Graph(), np.random.default_rng(0)
    attrs = WINDOW

    def const(value, name):
        return graph.const(np.asarray(value, np.float32), name)

    x = graph.input("x", "float32", (None, 6, 6, 2))
    x = graph.add("conv2d", x, const(rng.normal(size=(3, 3, 2, 4)), "w"), name="conv", attrs=attrs)
    x = graph.add("add", graph.add("square", x), const(1e-10, "epsilon"), name="guarded")
    x = graph.add("mul", graph.add("log", x), const(4, "four"), name="scaled")
    x = graph.add("relu", graph.add("bias_add", x, const(rng.normal(size=4), "b"), name="biased"))
    x = graph.add("conv2d", x, const(rng.normal(size=(1, 1, 4, 3)), "v"), name="last", attrs=attrs)
    graph.outputs["y"] = x
    return graph


def test_float_arithmetic_stays_float():
    data = np.random.default_rng(1).normal(size=(4, 6, 6, 2)).astype(np.float32)
    data[0] = 0
    result = quantize(decibels(), data)
    graph = result.graph
    guarded, biased = graph.nodes["guarded"], graph.nodes["biased"]
    assert [graph.producer(v).op for v in guarded.inputs] == ["square", "const"]
    assert [graph.producer(v).op for v in biased.inputs] == ["mul", "const"]
    assert graph.producer(graph.nodes["last"].inputs[0]).op == "quantize"
    assert ("guarded", "stays float: its inputs are float") in reasons(result.trace)
    assert np.isfinite(result.reference().outputs({"x": data})["y"]).all()
