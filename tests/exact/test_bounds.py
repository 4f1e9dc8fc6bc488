"""Bounds against brute force; accumulators that are too narrow; accumulators that wrap."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from qgraph.errors import ExactnessError
from qgraph.exact.bounds import Bound, bounds, check_accumulators
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.types import Fixed, QuantSpec
from qgraph.passes import PassManager
from qgraph.transforms.wrap_accumulators import WrapAccumulators
from tests.helpers.layers import WINDOW as SAME
from tests.helpers.layers import Net
from tests.helpers.quantized import INT8, INT32_BIAS, assert_tf_equals_reference, exact, quantize

WINDOW = {"strides": (1, 1), "dilations": (1, 1), "padding": "valid"}
TERMS, CHANNELS = 4, 3


def integers(g: Graph, value: str, bits: int, signed: bool = True, role: str = "input") -> str:
    """Codes that are the numbers themselves."""
    return g.add("quantize", value, attrs={"spec": QuantSpec(bits, signed, role, 0)})


def layer(op: str, weights, bits: int, signed: bool, bias=None, w_bits: int = 8, **attrs) -> Graph:
    """One layer on TERMS inputs, with weights [TERMS, CHANNELS] in the layout of the op."""
    g = Graph("layer")
    weights = np.asarray(weights, np.float32)
    terms, channels = weights.shape
    shape, filters = {
        "matmul": ((terms,), (terms, channels)),
        "conv2d": ((1, terms // 2, 2), (1, terms // 2, 2, channels)),
        "depthwise_conv2d": ((2, terms // 2, 1), (2, terms // 2, 1, channels)),
    }[op]
    x = integers(g, g.input("x", "float32", (None, *shape)), bits, signed)
    w = integers(g, g.const(weights.reshape(filters)), w_bits, role="weight")
    y = g.add(op, x, w, name="layer", attrs={} if op == "matmul" else {**WINDOW, **attrs})
    if bias is not None:
        b = integers(g, g.const(np.asarray(bias, np.float32)), 32, role="bias")
        y = g.add("bias_add", y, b, name="biased")
    g.outputs["y"] = y
    g.facts.add("calibrated")
    return g


def run(g: Graph, x) -> np.ndarray:
    """The outputs [samples, channels] for code rows [samples, terms]."""
    x = np.asarray(x, np.float32).reshape(-1, *g.types["x"].shape[1:])
    return exact(Reference(g).run({"x": x})[g.outputs["y"]]).reshape(len(x), -1)


def worst(weights, spec: QuantSpec, highest: bool) -> np.ndarray:
    """The input that the error's hint describes."""
    return np.where((weights > 0) == highest, spec.hi, spec.lo)


OPS = st.sampled_from(["matmul", "conv2d", "depthwise_conv2d"])
WEIGHTS = arrays(np.int64, (TERMS, CHANNELS), elements=st.integers(-8, 7))


@settings(max_examples=40)
@given(
    OPS,
    WEIGHTS,
    st.booleans(),
    st.none() | arrays(np.int64, CHANNELS, elements=st.integers(-99, 99)),
)
def test_the_bound_is_what_brute_force_finds(op, weights, signed, bias):
    g = layer(op, weights, 2, signed, bias)
    spec = QuantSpec(2, signed, "input")
    found = bounds(g)[g.outputs["y"]]
    everything = list(itertools.product(range(spec.lo, spec.hi + 1), repeat=TERMS))
    y = run(g, everything)
    assert (found.low, found.high) == (y.min(), y.max())
    assert found.magnitude >= np.abs(y).max()
    farthest = np.maximum(y.max(axis=0), -y.min(axis=0) - 1)
    assert farthest[found.channel] == farthest.max()


@settings(max_examples=20)
@given(st.integers(0, 99), st.booleans(), st.sampled_from(["same", ((1, 0), (2, 1))]))
def test_padding_does_not_escape_the_bound(seed, signed, padding):
    rng = np.random.default_rng(seed)
    g = layer("conv2d", rng.integers(-8, 8, (TERMS, CHANNELS)), 2, signed, padding=padding)
    spec = QuantSpec(2, signed, "input")
    found = bounds(g)["layer"]
    y = run(g, rng.integers(spec.lo, spec.hi + 1, (200, TERMS)))
    assert found.low <= y.min() and y.max() <= found.high


@settings(max_examples=40)
@given(OPS, WEIGHTS, st.booleans())
def test_the_width_is_the_smallest_that_holds(op, weights, signed):
    g = layer(op, weights, 8, signed)
    spec = QuantSpec(8, signed, "input")
    width = bounds(g)["layer"].width
    inputs = [worst(weights[:, c], spec, h) for c in range(CHANNELS) for h in (True, False)]
    y = run(g, inputs)
    assert -(2 ** (width - 1)) <= y.min() and y.max() < 2 ** (width - 1)
    half = 2 ** max(width - 2, 0)
    assert width == 1 or y.min() < -half or y.max() >= half


@pytest.mark.parametrize(
    ("low", "high", "width"),
    [(0, 0, 1), (0, 1, 2), (-1, 0, 1), (-2, 1, 2), (-128, 127, 8), (-128, 128, 9), (-129, 0, 9)],
)
def test_width_of_a_range(low, high, width):
    assert Bound(low, high, max(-low, high)).width == width


@pytest.mark.parametrize("op", ["matmul", "conv2d", "depthwise_conv2d"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_narrow_accumulator_is_refused_with_an_input_that_overflows_it(op, sign):
    rng = np.random.default_rng(1)
    weights = rng.integers(-20, 20, (TERMS, CHANNELS))
    weights[:, 1] = sign * np.array([90, 80, 100, -5])
    g = layer(op, weights, 8, False)
    found = bounds(g)
    needed = found["layer"].width
    check_accumulators(g, found, needed)
    with pytest.raises(ExactnessError) as error:
        check_accumulators(g, found, needed - 1)
    text = str(error.value)
    assert text.startswith("layer: channel 1 can reach ")
    reached = int(text.split("can reach ")[1].split(":")[0])
    x = worst(weights[:, 1], QuantSpec(8, False, "input"), "their highest code where" in text)
    assert run(g, [x])[0, 1] == reached
    assert not -(2 ** (needed - 2)) <= reached < 2 ** (needed - 2)


@pytest.mark.parametrize("seed", range(6))
def test_the_evidence_overflows_in_the_reference(seed):
    rng = np.random.default_rng(seed)
    net = Net(5, 4, 4)
    w = net.graph.const(rng.normal(size=(3, 3, 4, 6)).astype(np.float32), "w")
    y = net.op("conv2d", "x", w, name="layer", **{**SAME, "strides": (2, 1)})
    net.graph.outputs["y"] = net.op("bias_add", y, net.const("b", 6))
    graph = quantize(net.graph, (INT8, INT32_BIAS)[seed % 2])
    bits = max(b.width for b in bounds(graph).values()) - 1
    with pytest.raises(ExactnessError) as caught:
        check_accumulators(graph, bounds(graph), bits)
    ((name, codes),) = caught.value.evidence.items()
    exponent = graph.nodes[name].attrs["spec"].exponent
    value = caught.value.node
    sums = Reference(graph).run({name: Fixed(codes, exponent)}, [value])[value].codes
    reached = int(str(caught.value).split("can reach ")[1].split(":")[0])
    assert reached in sums and not -(2 ** (bits - 1)) <= reached < 2 ** (bits - 1)


def test_taps_that_no_window_sees_at_once_do_not_count():
    """A filter of 3x3 over an image of 2x2 never has more than four taps on it."""
    net = Net(2, 2, 1)
    w = net.graph.const(np.ones((3, 3, 1, 1), np.float32), "w")
    net.graph.outputs["y"] = net.op("conv2d", "x", w, name="layer", **SAME)
    graph = quantize(net.graph, data={"x": np.ones((2, 2, 2, 1), np.float32)})
    x, weight = (graph.nodes[v].attrs["spec"] for v in graph.nodes["layer"].inputs)
    ones = 1 << weight.exponent if weight.exponent < weight.bits - 1 else weight.hi
    assert bounds(graph)["layer"].high == 4 * x.hi * ones


def test_a_tie_between_channels_names_the_one_that_overflows():
    g = layer("matmul", [[-1, 1]], 8, True)  # -127..128 and -128..127
    found = bounds(g)
    assert found["layer"].width == 9
    with pytest.raises(ExactnessError, match="channel 0 can reach 128: this needs 9 bits"):
        check_accumulators(g, found, 8)


def test_a_bias_that_is_added_in_the_accumulator_counts():
    g = layer("matmul", np.ones((TERMS, 2)), 8, False, bias=[0, 200])
    found = bounds(g)
    assert (found["layer"].width, found["biased"].width) == (11, 12)
    with pytest.raises(ExactnessError, match="biased: channel 1 can reach 1220"):
        check_accumulators(g, found, 11)


def test_products_of_two_tensors_have_a_bound():
    g = Graph("two")
    x = integers(g, g.input("x", "float32", (3, 5)), 8)
    y = integers(g, g.input("y", "float32", (5, 2)), 4, False)
    g.add("matmul", x, y, name="m")
    assert bounds(g)["m"] == Bound(-128 * 15 * 5, 127 * 15 * 5, 128 * 15 * 5)


def test_products_of_two_tensors_that_are_too_wide_are_refused_without_a_channel():
    g = Graph("two")
    x = integers(g, g.input("x", "float32", (3, 5)), 8)
    g.add("matmul", x, integers(g, g.input("y", "float32", (5, 2)), 4, False), name="m")
    check_accumulators(g, bounds(g), 15)
    with pytest.raises(ExactnessError, match="m: sums can reach -9600: this needs 15") as error:
        check_accumulators(g, bounds(g), 14)
    assert error.value.evidence == {}
    assert "weight" not in str(error.value)


def test_zero_is_within_the_bound_of_a_constant():
    g = Graph("constants")
    low = integers(g, g.const(np.float32([-5, -3])), 8, role="weight")
    high = integers(g, g.const(np.float32([3, 5])), 8, role="weight")
    assert bounds(g) == {low: Bound(-5, 0, 5), high: Bound(0, 5, 5)}


@pytest.mark.parametrize("activation", ["relu", "relu6"])
def test_relu_of_what_is_never_positive_is_zero(activation):
    g = layer("matmul", [[-1]], 8, False, bias=[-10])
    g.add(activation, "biased", name="clipped")
    assert (bounds(g)["biased"].low, bounds(g)["biased"].high) == (-265, -10)
    assert bounds(g)["clipped"] == Bound(0, 0, 265)


def test_products_of_unknown_size_are_refused():
    g = Graph("two")
    x = integers(g, g.input("x", "float32", (3, None)), 8)
    g.add("matmul", x, integers(g, g.input("y", "float32", (None, 2)), 8), name="m")
    with pytest.raises(ExactnessError, match="m: multiplies matrices of unknown size"):
        bounds(g)


def test_sums_past_float64_are_refused():
    g = layer("matmul", np.full((2**9, 1), 2.0**30, np.float32), 16, False, w_bits=32)
    with pytest.raises(ExactnessError, match=r"layer: sums reach \d+: more than float64"):
        bounds(g)


# -- wrapping -------------------------------------------------------------------------------


def wrapped(g: Graph, bits: int) -> Graph:
    PassManager((WrapAccumulators(bits),)).run(g)
    return g


@pytest.mark.parametrize("bias", [None, [2**31 - 1, -(2**31), 12345]])
def test_32_bits_wrap_like_int32(bias):
    rng = np.random.default_rng(3)
    weights = rng.integers(-(2**15), 2**15, (64, 3))
    g = wrapped(layer("matmul", weights, 16, True, bias, w_bits=16), 32)
    g.outputs["y"] = "biased/acc32" if bias else "layer/acc32"
    x = rng.choice([-(2**15), 2**15 - 1, 77], (50, 64))
    with np.errstate(over="ignore"):
        plain = (x @ weights + np.array(bias or 0)).astype(np.int32)
    assert np.array_equal(run(g, x), plain)
    assert (np.abs(x @ weights) > 2**31).any()
    top = QuantSpec(8, True, "activation", -24)  # as float32, the outputs of a graph are narrow
    g.outputs["y"] = g.add("quantize", g.outputs["y"], attrs={"spec": top})
    assert assert_tf_equals_reference(g, {"x": x.astype(np.float32)})


@settings(max_examples=25)
@given(WEIGHTS, st.integers(5, 9), st.integers(-300, 300))
def test_a_bias_brings_a_wrapped_sum_back(weights, bits, bias):
    plain = layer("matmul", weights, 6, True, [bias] * CHANNELS)
    narrow = wrapped(plain.copy(), bits)
    narrow.outputs["y"] = next((u.name for u in narrow.users("biased")), "biased")
    x = np.random.default_rng(0).integers(-32, 32, (50, TERMS))
    half = 2 ** (bits - 1)
    assert np.array_equal(run(narrow, x), (run(plain, x) + half) % (2 * half) - half)


def test_a_bias_that_makes_room_for_a_sum_that_wraps():
    """0..1020 takes 11 bits, -510..510 only 10: after the bias the sum has to wrap back."""
    g = wrapped(layer("matmul", [[4]], 8, False, [-510]), 10)
    g.outputs["y"] = "biased/acc10"
    assert run(g, [[0], [100], [200], [255]]).ravel().tolist() == [-510, -110, 290, 510]


def test_wrapping_keeps_the_last_bit_near_the_end_of_float32():
    weights = np.full((516, 1), 127)
    g = wrapped(layer("matmul", weights, 8, False), 24)
    assert 2**23 < bounds(g)["layer"].high <= 2**24
    g.outputs["y"] = "layer/acc24"
    x = np.full((4, 516), 255.0, np.float32)
    x[1:, 0] -= [1, 2, 3]
    assert run(g, x).ravel().tolist() == [516 * 255 * 127 - 127 * i - 2**24 for i in range(4)]
    assert assert_tf_equals_reference(g, {"x": x})


def test_only_what_can_overflow_wraps():
    g = layer("matmul", np.ones((TERMS, 1)), 8, False)
    assert set(wrapped(g.copy(), 11).nodes) == set(g.nodes)
    assert set(wrapped(g.copy(), 10).nodes) - set(g.nodes) == {"layer/acc10"}
