"""Clipped values are counted before each quantizer, over all chunks of samples."""

from dataclasses import replace

import numpy as np
import pytest

from qgraph.exact.compare import measure
from qgraph.ir.graph import Graph
from qgraph.ir.types import QuantSpec, Role
from tests.helpers.layers import Net
from tests.helpers.quantized import INT8, quantize


def test_clipping_is_measured_at_quantizers_of_what_depends_on_data():
    net = Net()
    net.graph.outputs["y"] = net.fc(net.op("tanh", net.fc(net.x, "a"), name="t"), "b")
    floating = net.graph.copy()
    rng = np.random.default_rng(0)
    graph = quantize(net.graph, INT8, {"x": rng.uniform(-1, 1, (64, 4)).astype(np.float32)})
    x = rng.uniform(-5, 5, (700, 4)).astype(np.float32)
    found = measure(graph, floating, {"x": x})
    assert graph.nodes["t"].op == "lookup"
    assert set(found.clipped) == {
        node.name
        for node in graph.topological()
        if node.op == "quantize" and graph.constant(node.inputs[0]) is None
    }
    (entry,) = (n for n in graph.topological() if n.inputs == ("x",))
    spec = entry.attrs["spec"]
    steps = x * 2.0**spec.exponent
    wanted = np.mean((steps > spec.hi + 1) | (steps < spec.lo - 1))
    assert 0.5 < wanted < 1
    assert found.clipped[entry.name] == pytest.approx(wanted, abs=1e-12)


def test_weights_that_are_computed_are_measured_once() -> None:
    rng = np.random.default_rng(0)
    floating = Graph("net")
    floating.input("x", "float32", (None, 4))
    floating.const(rng.uniform(-2, 2, (4, 3)).astype(np.float32), "w")
    floating.add("neg", "w", name="n")
    floating.outputs["y"] = floating.add("matmul", "x", "n", name="fc")
    graph = floating.copy()
    graph.add("quantize", "x", name="x8", attrs={"spec": QuantSpec(8, True, Role.INPUT, 5)})
    spec = QuantSpec(8, True, Role.WEIGHT, 7)
    graph.add("quantize", "n", name="n8", attrs={"spec": spec})
    graph.replace(replace(graph.nodes["fc"], inputs=("x8", "n8")))
    x = rng.uniform(-1, 1, (700, 4)).astype(np.float32)
    found, few = (measure(graph, floating, {"x": samples}) for samples in (x, x[:1]))
    steps = -graph.constant("w") * 2.0**7
    beyond = np.mean((steps > spec.hi + 1) | (steps < spec.lo - 1))
    assert 0 < beyond < 1
    assert found.clipped["n8"] == few.clipped["n8"] == beyond
    assert found.sqnr["n8"] == few.sqnr["n8"]
