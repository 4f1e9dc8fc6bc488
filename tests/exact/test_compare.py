"""Clipped values are counted before each quantizer, over all chunks of samples."""

import numpy as np
import pytest

from qgraph.exact.compare import measure
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
