"""Convolutions of codes give what convolutions of floats give, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph import kernels
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.ops.windows import PaddingRule
from qgraph.ir.types import Array, QuantSpec, Role
from qgraph.kernels import coded_conv
from qgraph.kernels.coded_conv import CodedConv, CodeScale
from qgraph.quant.code_scales import CodeScales
from qgraph.quant.graph_run import GraphRun
from qgraph.quant.stages import linked

pytestmark = pytest.mark.skipif(
    not coded_conv.multiplies_bytes(), reason="no native code that multiplies bytes"
)

BYTE = QuantSpec(8, False, Role.ACTIVATION, 5)
WEIGHT = QuantSpec(8, True, Role.WEIGHT, 7)
ALL_PADS = ((1, 2), (0, 1))


def images(rng: np.random.Generator, scale: CodeScale, shape: tuple[int, ...]) -> Array:
    low, high = (-128, 128) if scale.signed else (0, 256)
    return np.ldexp(rng.integers(low, high, shape), -scale.exponent).astype(np.float32)


def filters(rng: np.random.Generator, exponent: int, shape: tuple[int, ...]) -> Array:
    return np.ldexp(rng.integers(-128, 128, shape), -exponent).astype(np.float32)


@given(
    seed=st.integers(0, 1 << 30),
    signed=st.booleans(),
    exponents=st.tuples(st.integers(-20, 20), st.integers(-20, 20)),
    groups=st.sampled_from([1, 2, 3]),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padded=st.booleans(),
)
def test_codes_give_the_bits_of_floats(
    seed, signed, exponents, groups, strides, dilations, kernel, padded
):
    rng = np.random.default_rng(seed)
    scale = CodeScale(exponents[0], signed)
    x = images(rng, scale, (2, 7, 8, 4 * groups))
    w = filters(rng, exponents[1], (*kernel, 4, 5 * groups))
    conv = CodedConv.of(w, scale, CodeScale(exponents[1], True), strides, dilations)
    pads = ALL_PADS if padded else ((0, 0), (0, 0))
    assert conv is not None
    found = conv(x, pads)
    wanted = kernels.conv2d(x, w, strides, dilations, (*pads[0], *pads[1]))
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("other", [0.3, 300.0, -1.0, 1e30, np.nan, np.inf])
def test_images_that_are_not_codes_are_multiplied_as_floats(other) -> None:
    rng = np.random.default_rng(0)
    x, w = images(rng, CodeScale(0, False), (1, 5, 5, 3)), filters(rng, 7, (2, 2, 3, 4))
    x[0, 2, 2, 1] = other
    conv = CodedConv.of(w, CodeScale(0, False), CodeScale(7, True), (1, 1), (1, 1))
    assert conv is not None
    wanted = kernels.conv2d(x, w, (1, 1), (1, 1), (0, 0, 0, 0))
    np.testing.assert_array_equal(conv(x, ((0, 0), (0, 0))), wanted)


@pytest.mark.parametrize(("inputs", "exact"), [(518, True), (519, False)])
def test_sums_that_float32_may_not_hold_are_left_to_floats(inputs, exact) -> None:
    """255 * 127 * 518 is below 2^24, and with one more product it is not."""
    w = np.full((1, 1, inputs, 2), 127, np.float32)
    conv = CodedConv.of(w, CodeScale(0, False), CodeScale(0, True), (1, 1), (1, 1))
    assert (conv is not None) == exact


def test_filters_that_are_not_codes_and_far_scales_are_left_to_floats() -> None:
    w = np.full((1, 1, 4, 4), 0.5, np.float32)
    near, far = CodeScale(0, True), CodeScale(coded_conv.MAX_EXPONENT + 1, True)
    for images_on, filters_on, values in ((near, near, w), (far, near, 2 * w), (near, far, 0 * w)):
        assert CodedConv.of(values, images_on, filters_on, (1, 1), (1, 1)) is None


def network() -> Graph:
    """Convolutions behind quantizers, a pool and a concat; one behind a sum, one on two scales."""
    rng = np.random.default_rng(1)
    g = Graph("net")
    g.input("x", "float32", (None, 8, 8, 24))
    coarse = BYTE.with_exponent(3)
    for name, spec in (("a", BYTE), ("b", BYTE), ("c", coarse)):
        g.add("quantize", "x", name=name, attrs={"spec": spec})
    window = {"ksize": (2, 2), "strides": (1, 1), "padding": PaddingRule.SAME}
    g.add("max_pool", "a", name="pooled", attrs=window)
    g.add("concat", "pooled", "b", name="joined", attrs={"axis": 3})
    g.add("concat", "a", "c", name="mixed", attrs={"axis": 3})
    g.add("add", "a", "b", name="sum")
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": PaddingRule.SAME}
    for name, x, depth in (
        ("1", "a", 24),
        ("2", "joined", 48),
        ("3", "mixed", 48),
        ("4", "sum", 24),
    ):
        w = g.const(rng.normal(0, 0.3, (3, 3, depth, 24)).astype(np.float32), f"w{name}")
        g.add("quantize", w, name=f"q{name}", attrs={"spec": WEIGHT})
        g.add("conv2d", x, f"q{name}", name=f"conv{name}", attrs=attrs)
    g.outputs = {f"y{name}": f"conv{name}" for name in "1234"}
    return g


def test_only_codes_on_one_scale_are_multiplied_as_codes() -> None:
    g, scales = network(), CodeScales()
    constants = {}
    for node in g.topological():
        if node.op == "quantize" and node.inputs[0].startswith("w"):
            scales.see(node)
            w = g.constant(node.inputs[0])
            constants[node.name] = kernels.quantize(w, 7, -128, 127, WEIGHT.rounding)
    nodes = [n for n in g.topological() if n.op not in ("input", "const")]
    varying = [n for n in nodes if n.name not in constants]
    links = linked(varying, constants, lambda _: False, scales)
    coded = {link.first.name for link in links if link.conv is not None}
    assert coded == {"conv1", "conv2"}


def test_a_run_on_codes_gives_the_bits_of_the_interpreter() -> None:
    g = network()
    x = np.random.default_rng(2).normal(1, 2, (3, 8, 8, 24)).astype(np.float32)
    found = GraphRun(g, g.outputs.values())({"x": x})
    wanted = evaluate(g, {"x": x})
    for public, value in g.outputs.items():
        assert found[value].tobytes() == wanted[public].tobytes()
