"""The checker finds what differs, names it, and forgives float ops only their last bit."""

import numpy as np
import pytest

from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.compiler import quantize
from qgraph.ir.graph import Graph
from tests.helpers.layers import WINDOW


def network(*between: str) -> Graph:
    """conv -> the ops of `between` -> conv."""
    graph, rng = Graph(), np.random.default_rng(0)

    def filters(*shape):
        return graph.const(rng.normal(size=shape).astype(np.float32), "w")

    x = graph.input("x", "float32", (None, 5, 5, 2))
    x = graph.add("conv2d", x, filters(3, 3, 2, 4), name="first", attrs=WINDOW)
    for op in between:
        x = graph.add(op, x, attrs={"axis": -1} if op == "softmax" else {})
    graph.outputs["y"] = graph.add("conv2d", x, filters(1, 1, 4, 3), name="last", attrs=WINDOW)
    return graph


@pytest.fixture
def data():
    return np.random.default_rng(1).normal(size=(4, 5, 5, 2)).astype(np.float32)


def test_exact(data):
    found = Checker(quantize(network("relu"), data).graph).run({"x": data})
    assert found.exact
    # The input, and of each layer the 16-bit stage and what it puts out; the output once more.
    assert found.tensors == 6
    assert found.elements == 4 * 5 * 5 * (2 + 4 + 4 + 3 + 3 + 3)
    assert found.float_outputs == {}


def test_first_difference_comes_first(data):
    graph = quantize(network("relu"), data).graph
    checker = Checker(graph)
    other = graph.copy()
    for node in other.topological():
        if node.op == "quantize" and node.attrs["spec"].role == "activation":
            spec = node.attrs["spec"]
            other.set_attrs(node.name, spec=spec.with_exponent(spec.exponent - 1))
            break
    checker.program = TFProgram(emit_graph_def(other))
    found = checker.run({"x": data})
    assert not found.exact
    assert found.differences[0].name == node.name
    assert 0 < found.differences[0].count <= 4 * 5 * 5 * 4
    assert found.differences[0].largest > 0


def test_reference_starts_from_float_results(data):
    result = quantize(network("tan"), data)
    checker = Checker(result.graph)
    assert checker.entries == ["tan"]
    assert checker.run({"x": data}).exact


def test_outputs_behind_float_ops_are_distinguished(data):
    graph = network()
    graph.outputs["y"] = graph.add("softmax", graph.outputs["y"])
    found = Checker(quantize(graph, data).graph).run({"x": data})
    assert found.exact
    assert found.float_outputs.keys() == {"y"}
    assert found.float_outputs["y"] < 1e-6
