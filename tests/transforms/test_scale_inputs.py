"""Features of an input get a scale each; the function stays to the last bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import ExactnessError
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.static.feature_exponents import feature_exponents
from qgraph.transforms.scale_inputs import ScaleInputs
from tests.helpers.evaluate import run_pass
from tests.helpers.layers import WINDOW, Net, inserted


def net_of(*prefix: str) -> tuple[Net, str]:
    """Two layers on an input that `prefix` normalises."""
    net = Net()
    y = net.x
    for index, op in enumerate(prefix):
        y = net.op(op, y, net.const(f"c{index}", 4, low=0.5), name=f"{op}{index}")
    net.graph.facts.add("batch-norm-folded")
    return net, net.op("add", net.fc(y, "a"), net.fc(y, "b"))


def data(*peaks: float) -> dict[str, np.ndarray]:
    rows = np.array([[1, -1, 1, -1], [-0.5, 0.5, 0.25, 1]], np.float32)
    return {"x": rows * np.array(peaks, np.float32)}


def test_each_feature_is_brought_to_one():
    net, y = net_of()
    net.graph.outputs["y"] = y
    found = feature_exponents(net.graph, data(1.0, 0.06, 1000.0, 0.5))
    assert found == {"x": (0, 4, -10, 1)}
    trace = run_pass(ScaleInputs(found), net.graph, tolerance=0)
    assert [r.after for r in trace.rewrites][-1:] == ["features times 2^-10 to 2^4"]


def test_a_feature_that_is_always_zero_follows_the_largest():
    net, y = net_of()
    net.graph.outputs["y"] = y
    assert feature_exponents(net.graph, data(4.0, 0.0, 0.5, 1.0)) == {"x": (-2, -2, 1, 0)}
    assert feature_exponents(net.graph, data(0, 0, 0, 0)) == {"x": (0, 0, 0, 0)}


@pytest.mark.parametrize("peaks", [(1e-44, 1.0, 2.0, 0.5), (3e38, 1.0, 1e-39, 0.5)])
def test_features_whose_power_of_two_exceeds_float32(peaks):
    """A factor of infinity would make all outputs infinite."""
    net, y = net_of()
    net.graph.outputs["y"] = y
    found = feature_exponents(net.graph, data(*peaks))
    assert all(abs(e) <= 126 for e in found["x"])
    scaled = net.graph.copy()
    PassManager([ScaleInputs(found)]).run(scaled)
    feeds = data(*peaks)
    (wanted,), (outputs,) = evaluate(net.graph, feeds).values(), evaluate(scaled, feeds).values()
    np.testing.assert_array_equal(outputs, wanted)


def test_an_exponent_out_of_range_is_refused():
    net, y = net_of()
    net.graph.outputs["y"] = y
    with pytest.raises(ExactnessError, match="x: exponent"):
        PassManager([ScaleInputs({"x": (0, 0, 200, 0)})]).run(net.graph)


@given(st.lists(st.floats(2**-20, 2**20, width=32), min_size=4, max_size=4))
def test_scaled_features_are_within_one(peaks):
    net, y = net_of()
    net.graph.outputs["y"] = y
    (exponents,) = feature_exponents(net.graph, data(*peaks)).values()
    scaled = np.ldexp(np.array(peaks, np.float32), exponents)
    assert (scaled <= 1).all() and (scaled > 0.5).all()


def test_normalisation_is_outside_the_network():
    net, y = net_of("sub", "mul", "minimum")
    net.graph.outputs["y"] = y
    found = feature_exponents(net.graph, data(1, 1, 1, 1))
    assert list(found) == ["minimum2"]
    run_pass(ScaleInputs(found), net.graph, tolerance=0)
    text, _ = inserted(net, y)
    assert text.splitlines()[:6] == [
        "%sub0 = sub(%x, %c0) {outside=True}",
        "%mul1 = mul(%sub0, %c1) {outside=True}",
        "%minimum2 = minimum(%mul1, %c2) {outside=True}",
        "%minimum2/scaled = mul(%minimum2, %minimum2/factors) {outside=True}",
        "%minimum2/scaled/q8 = quantize(%minimum2/scaled) {spec=<s8 input>}",
        "%a/w/unscaled/q8 = quantize(%a/w/unscaled) {spec=<s8 weight>}",
    ]


@pytest.mark.parametrize("why", ["an image", "another user", "an output", "another batch"])
def test_what_is_left_alone(why):
    g = Graph("net")
    shape = (None, 4, 4, 4) if why == "an image" else (None, 4)
    x = g.input("x", "float32", shape)
    if why == "an image":
        attrs = WINDOW
        g.outputs["y"] = g.add(
            "conv2d", x, g.const(np.ones((1, 1, 4, 2), np.float32), "w"), attrs=attrs
        )
    else:
        g.outputs["y"] = g.add("matmul", x, g.const(np.ones((4, 2), np.float32), "w"))
    if why == "another user":
        g.outputs["z"] = g.add("tanh", x)
    if why == "an output":
        g.outputs["z"] = x
    if why == "another batch":
        other = g.input("other", "float32", (None, 4))
        g.outputs["y"] = g.add("matmul", g.add("add", x, other), "w")
    rows = {name: np.ones((2, *shape[1:]), np.float32) for name in g.inputs}
    assert feature_exponents(g, rows) == {}
