"""One sweep gives every quantizer the exponent that it should have."""

from dataclasses import replace

import numpy as np
import pytest

import qgraph.quant.samples.data
from qgraph import numerics
from qgraph.errors import CalibrationError, ExactnessError, UsageError
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.ops import op_definition
from qgraph.ir.printing import print_graph
from qgraph.ir.types import ROUNDINGS, QuantSpec, TensorType
from qgraph.numerics import dequantize
from qgraph.passes import PassManager
from qgraph.quant.calibrate import Calibration, calibrate
from qgraph.quant.constant_scales import constant_exponent
from qgraph.quant.topology import QUANTIZERS, value_exponent
from qgraph.recipes import FLOAT
from tests.helpers.evaluate import random_feeds
from tests.helpers.generators.graphs import random_graph
from tests.helpers.layers import WINDOW
from tests.helpers.quantized import INT8, INT32_BIAS, PROFILES, exact, insert, quantize

RNG = np.random.default_rng(2)


def spec_of(g: Graph, name: str) -> QuantSpec:
    return g.nodes[name].attrs["spec"]


def uniform(shape: tuple, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    """Numbers that reach both ends."""
    values = RNG.uniform(low, high, shape).astype(np.float32)
    values.flat[:2] = low, high
    return values


def dense(weights=None, bias=None, channels: int = 4) -> Graph:
    g = Graph("dense")
    x = g.input("x", "float32", (None, channels))
    weights = uniform((channels, 3)) if weights is None else weights
    y = g.add("matmul", x, g.const(np.asarray(weights, np.float32), "w"), name="fc")
    if bias is not None:
        y = g.add("bias_add", y, g.const(np.asarray(bias, np.float32), "b"), name="biased")
    g.outputs["y"] = y
    return g


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", [0, 1, 7])
def test_every_quantizer_has_a_scale_that_fits_its_place(seed, profile):
    g = random_graph(seed, dtype="float32")
    PassManager(FLOAT).run(g)
    insert(g, PROFILES[profile])
    calibrate(g, random_feeds(g, batch=8), Calibration("mse", PROFILES[profile].shift))
    exponents, groups = {}, {}
    for node in g.topological():
        exponents[node.name] = value_exponent(node, exponents)
        if node.op in QUANTIZERS:
            spec = node.attrs["spec"]
            assert spec.exponent is not None
            groups.setdefault(spec.group or node.name, set()).add(spec.exponent)
            constant = spec.role in ("weight", "bias", "constant", "scale")
            assert spec.rounding == PROFILES[profile].rounding
            assert spec.overflow == ("saturate" if constant else PROFILES[profile].overflow)
        elif op_definition(node.op).same_scale and exponents[node.name] is not None:
            first, *others = (np.asarray(exponents[v]) for v in node.inputs)
            assert all(np.array_equal(first, other) for other in others)
    assert all(len(members) == 1 for members in groups.values())


@pytest.mark.parametrize("profile", [INT8, PROFILES["per-channel"]])
def test_a_layer_without_outputs_is_named(profile):
    g = dense(np.zeros((4, 0)))
    with pytest.raises(CalibrationError, match="fc/q16: has no elements to calibrate on"):
        quantize(g, profile, {"x": uniform((3, 4))})


def test_exponents_by_hand():
    """max |w| 0.9, max |x| 3, max |y| 11 and their ceil(log2)."""
    g = dense([[0.9], [0.5]], [11.0], channels=2)
    quantize(g, INT8, {"x": np.array([[3, -1], [0.2, 2]], np.float32)})
    assert spec_of(g, "w/q8").exponent == 7 - 0
    assert spec_of(g, "x/q8").exponent == 7 - 2
    assert spec_of(g, "b/q16").exponent == spec_of(g, "fc/q16").exponent == 15 - 4
    assert spec_of(g, "biased/q8").exponent == 7 - 4


@pytest.mark.parametrize("method", ["kl_j", "percentile"])
def test_what_leaves_the_network_is_not_clipped(method):
    """The largest logit decides the class; inside the network, one number in 20,000 may be
    clipped.
    """
    x = np.zeros((20_000, 4), np.float32)
    x[np.arange(len(x)), np.arange(len(x)) % 4] = uniform((len(x),), -0.95, 0.95)
    x[0] = 0.9
    g = dense(np.ones((4, 4)))
    g.outputs["y"] = g.add("relu", g.outputs["y"], name="inner")
    v = g.const(np.eye(4, dtype=np.float32), "v")
    deeper = g.copy()
    deeper.outputs["y"] = deeper.add("matmul", "inner", v)
    g.outputs["y"] = g.add("softmax", "inner", attrs={"axis": 1})
    for graph in (g, deeper):
        quantize(graph, INT8, {"x": x}, method)
    assert spec_of(g, "inner/q8").exponent == 8 - 2 < spec_of(deeper, "inner/q8").exponent


def test_thresholds_for_numbers_of_the_float_network():
    """Small weights are gone beside a large one; steps that follow bring back what they made."""
    w = np.full((4, 4), 0.4 / 128, np.float32)
    w[0, 0] = 0.99
    g = dense(w)
    v = g.const(np.eye(4, dtype=np.float32), "v")
    g.outputs["y"] = g.add("matmul", g.add("relu", g.outputs["y"], name="inner"), v)
    x = np.full((8, 4), 200, np.float32)
    x[:, 0] = 0.3
    exponents = []
    for of_float in (False, True):
        graph = g.copy()
        insert(graph, INT8)
        calibrate(graph, {"x": x}, Calibration("max", of_float=of_float))
        exponents.append(spec_of(graph, "inner/q8").exponent)
    assert exponents == [8, 8 - 2]


def test_a_group_takes_the_largest_range_of_its_members():
    g = Graph("sum")
    a, b = (g.input(name, "float32", (None, 2)) for name in "ab")
    g.outputs["y"] = g.add("add", a, b)
    quantize(g, INT8, {"a": uniform((8, 2)), "b": uniform((8, 2), -7, 7)})
    assert spec_of(g, "a/q8").exponent == spec_of(g, "b/q8").exponent == 7 - 3
    assert spec_of(g, "a/q8").group == spec_of(g, "b/q8").group


def test_a_bias_without_a_stage_of_its_own_is_on_the_accumulators_scale():
    g = quantize(dense(bias=[0.1, -2, 3]), INT32_BIAS)
    fw, fx = spec_of(g, "w/q8").exponent, spec_of(g, "x/q8").exponent
    assert spec_of(g, "b/q32").exponent == fw + fx


def test_a_bias_of_two_layers_follows_each():
    g = Graph("shared")
    x, b = g.input("x", "float32", (None, 2)), g.const(np.float32([1, 2]), "b")
    for name, size in (("one", 1), ("ten", 10)):
        w = g.const(np.full((2, 2), size, np.float32), f"w_{name}")
        g.outputs[name] = g.add("bias_add", g.add("matmul", x, w), b)
    feeds = {"x": uniform((8, 2))}
    quantize(g, INT32_BIAS, feeds)
    exponents = [spec_of(g, name).exponent for name in ("b/q32", "b/q32_1")]
    assert exponents[0] - exponents[1] == 4
    Reference(g).run(feeds)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_rounding_is_the_profiles(rounding):
    g = dense([[1.0]], channels=1)
    quantize(g, replace(INT8, rounding=rounding), {"x": np.float32([[2**-8 * 126], [-0.9]])})
    ties = np.float32([[0.5], [1.5], [-0.5], [-1.5]]) * np.float32(2.0**-7)
    codes = Reference(g).run({"x": ties})["x/q8"].codes.ravel().tolist()
    assert codes == {
        "half_even": [0, 2, 0, -2], "half_up": [1, 2, 0, -1],
        "half_away": [1, 2, -1, -2], "floor": [0, 1, -1, -2], "double": [1, 2, -1, -2],
    }[rounding]  # fmt: skip


@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d"])
@pytest.mark.parametrize("last", [1, 3])
def test_per_channel_scales_are_those_of_output_channels(op, last):
    g = Graph("net")
    w = uniform((3, 3, 2, last))
    w[..., 1, :] *= 8 if op == "depthwise_conv2d" else 1
    w[..., -1] *= 4
    x = g.input("x", "float32", (None, 5, 5, 2))
    g.outputs["y"] = g.add(op, x, g.const(w, "w"), attrs=WINDOW)
    quantize(g, replace(INT8, per_channel=True))
    columns = w.reshape(9, -1) if op == "depthwise_conv2d" else w.reshape(18, -1)
    wanted = 7 - np.ceil(np.log2(np.abs(columns).max(axis=0)))
    assert spec_of(g, "w/q8").exponent == tuple(wanted)
    found = exact(Reference(g).constants["w/q8"])
    assert np.abs(found - w).max() <= 2.0 ** -(min(wanted) + 1) * 1.01 or last == 1


def test_weights_that_two_kinds_of_layer_share_have_scales_for_each():
    g = Graph("net")
    x, w = g.input("x", "float32", (None, 5, 5, 2)), g.const(uniform((3, 3, 2, 2)), "w")
    g.outputs["y"] = g.add("conv2d", x, w, name="c", attrs=WINDOW)
    g.outputs["z"] = g.add("depthwise_conv2d", x, w, name="d", attrs=WINDOW)
    quantize(g, replace(INT8, per_channel=True))
    sizes = [len(spec_of(g, g.nodes[name].inputs[1]).exponent) for name in "cd"]
    assert sizes == [2, 4]
    Reference(g).run(random_feeds(g))


def test_inputs_that_are_never_negative_lose_the_sign_and_are_not_clipped():
    """With pixels, the sweep and later runs give the next layer the same values."""
    g = dense([[1.0]], channels=1)
    data = {"x": uniform((64, 1), 0, 1)}
    quantize(g, INT8, data)
    assert not spec_of(g, "x/q8").signed and spec_of(g, "x/q8").exponent == 8
    largest = exact(Reference(g).run(data)["fc/q16"]).max()
    assert largest > 0.98 and spec_of(g, "fc/q16").exponent == 15 - 0


def test_one_sign_for_what_is_joined():
    g = Graph("net")
    x, y = (g.input(name, "float32", (None, 4, 4, 1)) for name in "xy")
    pooled = g.add("max_pool", x, attrs={"ksize": (1, 1), "strides": (1, 1), "padding": "same"})
    joined = g.add("concat", pooled, g.add("add", y, y), attrs={"axis": 3})
    g.outputs["t"] = g.add("tanh", joined)
    data = {"x": uniform((8, 4, 4, 1), 0, 1), "y": uniform((8, 4, 4, 1))}
    quantize(g, INT8, data)
    signs = {n.attrs["spec"].signed for n in g.nodes.values() if n.op == "quantize"}
    assert signs == {True}
    Reference(g).run(data)


def test_shifts_stay_legal_or_are_refused():
    legal = replace(INT8, shift=(0, 8))
    g = quantize(dense(bias=[1, 2, 3]), legal)
    exponents = {}
    for node in g.topological():
        exponents[node.name] = value_exponent(node, exponents)
        source = exponents.get(node.inputs[0]) if node.inputs else None
        if node.op == "quantize" and source is not None:
            assert 0 <= source - exponents[node.name] <= 8
    with pytest.raises(ExactnessError, match="needs a requantization shift of"):
        quantize(dense(np.full((4, 3), 2.0**-20), bias=[9, 9, 9]), replace(INT8, shift=(5, 8)))


@pytest.mark.parametrize("method", ["kl_j", "max", "percentile", "mse"])
def test_the_result_does_not_depend_on_the_chunk_size(method, monkeypatch):
    texts = set()
    for size in (1, 3, 8, 100):
        monkeypatch.setattr(qgraph.quant.samples.data, "CHUNK", size)
        g = random_graph(4, dtype="float32")
        PassManager(FLOAT).run(g)
        texts.add(print_graph(quantize(g, INT8, random_feeds(g, batch=10), method)))
    assert len(texts) == 1


def test_zeros_get_a_defined_scale():
    g = quantize(dense(np.zeros((4, 3)), bias=[0, 0, 0]))
    assert spec_of(g, "w/q8").exponent == 7 and spec_of(g, "biased/q8").exponent == 7
    assert not exact(Reference(g).run({"x": uniform((2, 4))})["biased/q8"]).any()


def test_nan_names_the_tensor():
    class Broken:
        def run(self, inputs):
            return inputs[0] * np.float32(np.nan)

    g = Graph("net")
    types = (TensorType("float32", (None, 4)),)
    attrs = {"kind": "Broken", "types": types, "source": Broken()}
    x = g.add("opaque", g.input("x", "float32", (None, 4)), name="strange", attrs=attrs)
    g.outputs["y"] = g.add("matmul", x, g.const(uniform((4, 2)), "w"))
    with pytest.raises(CalibrationError, match="strange/q8: NaN or infinite"):
        quantize(g)


def test_scales_out_of_range_name_the_tensor():
    with pytest.raises(ExactnessError, match="w/q8: exponent 137 is outside"):
        quantize(dense(np.full((4, 3), 2.0**-130)))


def test_unknown_method():
    with pytest.raises(UsageError, match="unknown calibration method `best`"):
        Calibration("best")


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_bias_that_does_not_fit_its_accumulator_makes_the_weights_coarser(per_channel):
    g = Graph("net")
    x = g.input("x", "float32", (None, 4))
    w = g.const(uniform((4, 3)) * np.float32(2.0**-22), "w")
    bias = np.array([50, -3, 0], np.float32)
    g.outputs["y"] = g.add("bias_add", g.add("matmul", x, w), g.const(bias, "b"))
    insert(g, replace(INT32_BIAS, per_channel=per_channel))
    calibrate(g, {"x": uniform((8, 4))})
    spec = spec_of(g, "b/q32")
    np.testing.assert_array_equal(dequantize(numerics.quantize(bias, spec)), bias)
    weights, inputs = (np.asarray(spec_of(g, n).exponent) for n in ("w/q8", "x/q8"))
    assert np.array_equal(np.asarray(spec.exponent), weights + inputs)


@pytest.mark.parametrize(("bits", "exponent"), [(8, 7), (4, 3)])
def test_three_standard_deviations_of_weights(bits, exponent):
    """With 10,000 normal weights of deviation 0.25 and one of 5: 0.76 and not 5."""
    weights = np.append(np.random.default_rng(0).normal(0, 0.25, 9999), 5.0)
    spec = QuantSpec(bits, True, "weight")
    assert constant_exponent(weights, spec, method="3sd") == exponent
    assert constant_exponent(weights, spec) == exponent - 3
    flat = np.full(100, 0.25)  # its largest is less than three deviations
    assert constant_exponent(flat, spec, method="3sd") == constant_exponent(flat, spec)
    assert constant_exponent(np.zeros(3), spec, method="3sd") == constant_exponent(
        np.zeros(3), spec
    )
    for role in ("bias", "constant"):
        other = QuantSpec(bits, True, role)
        assert constant_exponent(weights, other, method="3sd") == constant_exponent(weights, other)


def test_a_share_of_the_weights_is_not_clipped():
    """99 % of the magnitudes 1/1000 to 1 are at most 0.99, whatever the others are."""
    spec = QuantSpec(8, True, "weight")
    weights = np.arange(1, 1001) / 1000
    assert constant_exponent(weights, spec, method="percentile") == 7
    weights[-5:] = 100.0
    assert constant_exponent(weights, spec, method="percentile") == 7
    assert constant_exponent(weights, spec) == 0


@pytest.mark.parametrize("method", ["max", "3sd", "percentile"])
@pytest.mark.parametrize("depthwise", [False, True])
def test_channels_have_the_thresholds_that_they_have_alone(method, depthwise):
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(3, 3, 4, 2)) * rng.uniform(0.1, 10, (4, 2) if depthwise else 2)
    spec = QuantSpec(4, True, "weight", per_channel=True)
    columns = weights.reshape(9, 8) if depthwise else weights.reshape(-1, 2)
    alone = QuantSpec(4, True, "weight")
    wanted = tuple(constant_exponent(c, alone, method=method) for c in columns.T)
    assert constant_exponent(weights, spec, depthwise, method) == wanted
