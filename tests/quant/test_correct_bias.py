"""A layer's mean error goes into its bias, as far as the bias's own grid and range allow."""

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Moments
from qgraph.ir.verify import verify
from qgraph.quant.correct_bias import BiasCorrection, correct_biases, correct_biases_without_data
from qgraph.quant.paired import layer_of
from qgraph.quant.profile import parse_profile
from tests.helpers.layers import WINDOW
from tests.helpers.quantized import INT8, INT32_BIAS, PROFILES, assert_tf_equals_reference, quantize
from tests.quant.test_paired import pair


def dense(weights, bias) -> Graph:
    g = Graph("dense")
    x = g.input("x", "float32", (None, len(weights)))
    y = g.add("matmul", x, g.const(np.asarray(weights, np.float32), "w"), name="fc")
    if bias is not None:
        y = g.add("bias_add", y, g.const(np.asarray(bias, np.float32), "b"), name="biased")
    g.outputs["y"] = y
    return g


@pytest.mark.parametrize("profile", ["int8", "int4", "int32-bias", "per-channel", "half_up"])
@pytest.mark.parametrize("seed", [0, 2, 5, 11])
def test_channel_means_are_the_float_networks(seed, profile):
    graph, floating, data = pair(seed, profile)
    scales = {n.name: n.attrs["spec"] for n in graph.topological() if n.op == "quantize"}
    done = {c.layer: c for c in correct_biases(graph, floating, data)}
    verify(graph)
    assert {n.name: n.attrs["spec"] for n in graph.topological() if n.name in scales} == scales
    layers = {n.name: layer_of(graph, n) for n in graph.topological() if n.op == "bias_add"}
    corrected = {v: c.name for v, c in layers.items() if c and not done[c.name].note}
    assert corrected
    found, wanted = (evaluate(g, data, list(corrected)) for g in (graph, floating))
    for value in corrected:
        spec = graph.producer(graph.nodes[value].inputs[1]).attrs["spec"]
        step = 2.0 ** -np.min(spec.exponent)
        off = (found[value].astype(np.float64) - wanted[value]).mean(
            axis=tuple(range(found[value].ndim - 1))
        )
        rounding = 1e-5 * np.abs(wanted[value]).max()  # float32 sums and biases
        assert np.abs(off).max() <= step / 2 + rounding, value


@pytest.mark.parametrize("profile", ["int8", "int4", "int32-bias", "per-channel"])
def test_the_emitted_graph_still_equals_the_reference(profile):
    graph, floating, data = pair(3, profile)
    correct_biases(graph, floating, data)
    assert assert_tf_equals_reference(graph, data) > 3


def test_by_hand():
    """0.3 is 77 steps of 1/256, 0.375 is on the grid: only the first bias has to give way."""
    g = dense([[0.3, 0.375]], [1.0, 1.5])
    data = {"x": np.float32([[3], [3]])}
    graph = quantize(g.copy(), INT8, data)
    missed = 3 * (0.3 - 77 / 256)
    (only,) = correct_biases(graph, g, data)
    np.testing.assert_allclose(graph.constant("b"), [1 + missed, 1.5], atol=1e-6)
    assert only == BiasCorrection("fc", pytest.approx(np.sqrt(missed**2 / 2), abs=1e-6))
    assert g.constant("b").tolist() == [1, 1.5]


def test_a_bias_stops_at_the_end_of_its_range():
    """An output of 20 is worth 5 bits before the point; a bias of 16 bits cannot add 300."""
    g = dense([[1.0]], [0.5])
    data = {"x": np.full((4, 1), 3.0, np.float32)}
    graph = quantize(g.copy(), INT8, data)
    far = g.copy()
    far.set_attrs("b", value=np.float32([300]))
    (only,) = correct_biases(graph, far, data)
    spec = graph.nodes["b/q16"].attrs["spec"]
    assert graph.constant("b").tolist() == [spec.hi * 2.0**-spec.exponent]
    assert only.note == "1 of 1 biases are limited to their range"


def test_layers_without_a_bias_are_unchanged_and_noted():
    g = dense([[0.3, 0.7]], None)
    data = {"x": np.float32([[1]])}
    graph = quantize(g.copy(), INT8, data)
    before = graph.copy()
    assert correct_biases(graph, g, data) == [BiasCorrection("fc", 0.0, "has no bias")]
    assert graph.nodes == before.nodes


def test_pools_are_no_layers():
    g = Graph("pool")
    x = g.input("x", "float32", (None, 4, 4, 3))
    ones = g.const(np.ones((2, 2, 3, 1), np.float32), "ones")
    sums = g.add("depthwise_conv2d", x, ones, name="sums", attrs={**WINDOW, "pool": True})
    quarter = g.const(np.float32(0.25), "quarter")
    g.outputs["y"] = g.add("mul", sums, quarter, name="mean", attrs={"pool": True})
    data = {"x": np.random.default_rng(0).normal(size=(2, 4, 4, 3)).astype(np.float32)}
    graph = quantize(g.copy(), INT8, data)
    assert correct_biases(graph, g, data) == []


@pytest.mark.parametrize("profile", [INT8, INT32_BIAS, PROFILES["per-channel"]])
def test_zero_weights_and_one_sample(profile):
    g = dense(np.zeros((3, 1)), [0.3])
    data = {"x": np.float32([[1, 2, -3]])}
    graph = quantize(g.copy(), profile, data)
    (only,) = correct_biases(graph, g, data)
    assert abs(only.shift) < 1e-4
    assert abs(float(graph.constant("b")[0]) - 0.3) < 1e-6


# -- without data ------------------------------------------------------------------------------

WEIGHTS = parse_profile(
    {"name": "w4", "bits": {"weight": 4, "weight_ends": 4, "activation": 16, "input": 16,
                            "bias": 24, "internal": None}, "accumulator": {"bits": 48}}
)  # fmt: skip
RNG = np.random.default_rng(3)
NORMAL = Moments(np.array([0.5, -1, 3, 5]), np.array([1.0, 2, 1, 4]))


def normal_network(padding: str) -> Graph:
    """relu6 of what is normal by NORMAL -> 3x3 convolution -> bias."""
    g = Graph("normal")
    x = g.input("x", "float32", (None, 6, 6, 4))
    g.moments[x] = NORMAL
    w = g.const(RNG.normal(size=(3, 3, 4, 5)).astype(np.float32), "w")
    attrs = {**WINDOW, "padding": padding}
    y = g.add("conv2d", g.add("relu6", x), w, name="conv", attrs=attrs)
    g.outputs["y"] = g.add("bias_add", y, g.const(np.ones(5, np.float32), "b"), name="biased")
    return g


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_statistics_give_the_correction_that_samples_give(padding):
    """On data that are as the statistics say; activations are fine, weights coarse."""
    g = normal_network(padding)
    x = RNG.normal(NORMAL.mean, NORMAL.deviation, (2000, 6, 6, 4)).astype(np.float32)
    graph = quantize(g.copy(), WEIGHTS, {"x": x})
    plain = graph.constant("b")
    free, measured = graph.copy(), graph.copy()
    (found,) = correct_biases_without_data(free, g)
    (known,) = correct_biases(measured, g, {"x": x})
    assert known.shift > 0.05 and found.shift == pytest.approx(known.shift, rel=0.05)
    np.testing.assert_allclose(free.constant("b"), measured.constant("b"), atol=0.05 * known.shift)
    assert np.abs(free.constant("b") - plain).max() > 0.05


def test_inputs_of_unknown_mean_are_unchanged_and_noted():
    g = normal_network("same")
    g.moments.clear()
    graph = quantize(g.copy(), INT8)
    before = graph.copy()
    note = BiasCorrection("conv", 0.0, "the mean of its input is unknown")
    assert correct_biases_without_data(graph, g) == [note] and graph.nodes == before.nodes


def test_a_layer_without_a_bias_is_noted_without_data_too():
    g = dense([[0.3, 0.7]], None)
    g.moments["x"] = Moments(np.ones(1), np.ones(1))
    graph = quantize(g.copy(), INT8, {"x": np.float32([[1]])})
    assert correct_biases_without_data(graph, g) == [BiasCorrection("fc", 0.0, "has no bias")]
