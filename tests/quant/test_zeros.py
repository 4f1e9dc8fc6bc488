"""Tensors that are zero everywhere are exact on every scale: they force none on others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.choices import CalibrationMethod
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.types import Fixed
from qgraph.passes import PassManager
from qgraph.quant.calibrate import Calibration, calibrate
from qgraph.quant.profile import Profile
from qgraph.recipes import FLOAT
from tests.helpers.layers import WINDOW
from tests.helpers.quantized import INT8, INT32_BIAS, PROFILES, assert_tf_equals_reference, insert

RNG = np.random.default_rng(5)
X = RNG.uniform(0.1, 1, (4, 4, 4, 3)).astype(np.float32)
KINDS = ("int8", "int4", "int32-bias", "per-channel", "per-channel-int32", "half_up", "floor")


def network(power: int = 0) -> Graph:
    """Every op that joins scales, with members that are all zero; 2^power times its own input."""
    g = Graph("zeros")
    x = g.input("x", "float32", (None, 4, 4, 3))
    rng = np.random.default_rng(0)

    def layer(x: str, name: str, filters: int, scale: float = 1.0) -> str:
        channels = g.types[x].shape[-1]
        w = np.ldexp(rng.normal(0, 0.3, (3, 3, channels, filters)), power if x == "x" else 0)
        made = g.add(
            "conv2d",
            x,
            g.const((w * scale).astype(np.float32), f"{name}/w"),
            name=name,
            attrs=WINDOW,
        )
        return g.add("bias_add", made, g.const(np.zeros(filters, np.float32), f"{name}/b"))

    def zeros(*shape: int) -> str:
        return g.const(np.zeros(shape, np.float32), f"zeros{len(g.nodes)}")

    y = g.add("relu", layer(x, "first", 4))
    y = g.add("add", y, layer(y, "residual", 4))
    y = g.add("add", y, zeros(4, 4, 4))
    dead = g.add("minimum", g.add("relu", layer(y, "dead", 4)), zeros())
    y = g.add("concat", y, dead, layer(y, "none", 2, scale=0.0), attrs={"axis": 3})
    y = g.add("leaky_relu", layer(y, "second", 4), attrs={"alpha": 0.25})
    g.outputs["y"] = g.add("identity", layer(y, "last", 3), name="out")
    return g


def calibrated(graph: Graph, profile: Profile, x, method: str = "max") -> Graph:
    PassManager(FLOAT).run(graph)
    insert(graph, profile)
    calibrate(graph, {"x": x}, Calibration(method, profile.shift))
    return graph


def codes(graph: Graph, x) -> dict[str, list[int]]:
    values = Reference(graph).run({"x": x})
    return {name: v.codes.tolist() for name, v in values.items() if isinstance(v, Fixed)}


@pytest.mark.parametrize(
    ("kind", "method"),
    [*(("int8", name) for name in CalibrationMethod), *((kind, "max") for kind in KINDS[1:])],
)
def test_the_magnitude_of_the_input_does_not_change_a_code(kind, method):
    profile = PROFILES[kind]
    wanted = codes(calibrated(network(), profile, X, method), X)
    for power in (-37, 31):
        scaled = np.ldexp(X, power)
        assert codes(calibrated(network(), profile, scaled, method), scaled) == wanted


@settings(max_examples=10)
@given(
    st.integers(-24, 24),
    st.integers(-24, 24),
    st.sampled_from(KINDS),
    st.sampled_from(CalibrationMethod),
)
def test_powers_of_two_in_the_input_and_the_first_layer_shift_exponents(a, b, kind, method):
    plain = calibrated(network(), PROFILES[kind], X, method)
    x = np.ldexp(X, a)
    scaled = calibrated(network(b), PROFILES[kind], x, method)
    assert codes(scaled, x) == codes(plain, X)
    for name, by in (("x/q8", a), ("first/w/q8", b)):
        if name in plain.nodes:
            before, after = (
                np.asarray(g.nodes[name].attrs["spec"].exponent) for g in (plain, scaled)
            )
            assert (before - after == by).all()
    wanted, found = (Reference(g).outputs({"x": v})["y"] for g, v in ((plain, X), (scaled, x)))
    np.testing.assert_array_equal(found, np.ldexp(wanted, a + b))


@pytest.mark.parametrize("kind", ["int8", "int32-bias", "per-channel"])
def test_tensorflow_gives_the_same_codes_at_small_magnitudes(kind):
    x = np.ldexp(X, -37)
    assert assert_tf_equals_reference(calibrated(network(), PROFILES[kind], x), {"x": x})


def dense(weights, bias, extra=None) -> Graph:
    g = Graph("dense")
    y = g.add("matmul", g.input("x", "float32", (None, 4)), g.const(np.float32(weights), "w"))
    y = g.add("bias_add", y, g.const(np.float32(bias), "b"), name="biased")
    if extra is not None:
        y = g.add("concat", y, g.const(np.float32(extra), "extra"), attrs={"axis": 1})
    g.outputs["y"] = y
    return g


@pytest.mark.parametrize("profile", [INT8, INT32_BIAS, PROFILES["per-channel-int32"]], ids=str)
@pytest.mark.parametrize("size", [1e-12, 1e-6, 1.0, 1e12])
def test_weights_that_are_all_zero_leave_the_bias_exact(profile, size):
    """The output is the bias: 8 bits of it, whatever the weights' scale would have been."""
    bias = np.float32([1, -0.5, 0.25]) * np.float32(size)
    g = calibrated(dense(np.zeros((4, 3)), bias), profile, RNG.normal(size=(8, 4)))
    found = Reference(g).outputs({"x": np.ones((1, 4), np.float32)})["y"]
    np.testing.assert_allclose(found[0], bias, atol=2**-7 * size)


@pytest.mark.parametrize("power", [-40, 40])
def test_a_layer_that_is_all_zero_fits_whatever_follows(power):
    """Its accumulator would need a shift that no target has, from the scale of threshold 1."""
    found = {}
    for size in (0, power):
        g = Graph("two")
        x = g.input("x", "float32", (None, 4))
        rng = np.random.default_rng(0)
        w = g.const(np.ldexp(rng.normal(size=(4, 3)), size).astype(np.float32), "w")
        nothing = g.const(np.zeros((4, 3), np.float32), "z")
        g.outputs["y"] = g.add("add", g.add("matmul", x, w), g.add("matmul", x, nothing))
        data = np.ldexp(rng.normal(size=(16, 4)), size).astype(np.float32)
        found[size] = codes(calibrated(g, INT8, data), data)
    assert found[power] == found[0]


def test_a_group_of_zeros_has_the_scale_of_one():
    g = calibrated(dense(np.zeros((4, 3)), np.zeros(3)), INT8, X[:, 0, 0, [0, 1, 2, 2]])
    exponents = {n.attrs["spec"].exponent for n in g.nodes.values() if n.name in ("b/q16",)}
    assert exponents == {15}
    assert not Reference(g).outputs({"x": np.ones((2, 4), np.float32)})["y"].any()


def test_a_tiny_member_of_a_group_is_lost_not_refused():
    """Alone its exponent would exceed 126; in the group it rounds to zero."""
    g = calibrated(dense(np.eye(4, 3), np.full(3, 1e-38)), INT8, X[:, 0, 0, [0, 1, 2, 2]])
    assert g.nodes["b/q16"].attrs["spec"].exponent == 15
