"""Thresholds by what the layers behind a tensor make of its error."""

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.types import QuantSpec
from qgraph.quant.calibrate import Calibration, calibrate
from qgraph.quant.output_error import ITSELF, Errors, consumers_of, cost, errors, exponent_by_output
from tests.helpers.layers import WINDOW
from tests.helpers.quantized import insert

RNG = np.random.default_rng(5)
POOL = {"ksize": (2, 2), "strides": (2, 2), "padding": "valid"}
S8 = QuantSpec(8, True, "activation")


def const(g: Graph, *shape: int) -> str:
    return g.const(RNG.normal(size=shape).astype(np.float32), "w")


def branches() -> Graph:
    """`x` goes through a pool and a concat to a layer, and into a sum."""
    g = Graph("branches")
    image = g.input("image", "float32", (None, 4, 4, 2))
    x, y = (g.add("tanh", image, name=name) for name in "xy")
    pooled = g.add("max_pool", x, name="pool", attrs=POOL)
    other = g.add("max_pool", y, name="other", attrs=POOL)
    joined = g.add("concat", pooled, other, name="joined", attrs={"axis": 3})
    g.outputs["conv"] = g.add("conv2d", joined, const(g, 1, 1, 4, 3), name="conv", attrs=WINDOW)
    g.outputs["sum"] = g.add("add", x, y, name="sum")
    return g


def constant_in(g: Graph):
    """Weights without their quantizers."""
    return lambda value: g.constant((*g.producer(value).inputs, value)[0])


def test_the_way_to_a_layer_goes_through_pools_and_concats():
    g = branches()
    insert(g)
    first, layer = consumers_of(g, "x", constant_in(g))
    assert first is ITSELF
    x = RNG.normal(size=(3, 4, 4, 2)).astype(np.float32)
    pooled = x.reshape(3, 2, 2, 2, 2, 2).max(axis=(2, 4))
    wanted = pooled @ constant_in(g)(g.nodes["conv"].inputs[1])[0, 0, :2]
    np.testing.assert_allclose(layer(x), wanted, rtol=1e-5, atol=1e-6)  # sums in another order


def test_an_output_counts_for_itself_too():
    g = Graph("net")
    x = g.add("tanh", g.input("x", "float32", (None, 4)), name="inner")
    g.outputs["inner"], g.outputs["y"] = x, g.add("matmul", x, const(g, 4, 2))
    insert(g)
    first, layer = consumers_of(g, "inner", constant_in(g))
    assert first is ITSELF and layer.steps


def test_a_tensor_that_no_layer_takes_counts_for_itself():
    g = Graph("net")
    g.outputs["y"] = g.add("tanh", g.input("x", "float32", (None, 4)))
    insert(g)
    assert consumers_of(g, "x/q8", lambda v: None) == [ITSELF]
    x = np.float32([[0.3, 5.0]])
    found = errors(x, S8, [4, 7], [ITSELF])
    assert found.layers.shape == (0, 3)
    wanted = [x**2, (x - [0.3125, 5.0]) ** 2, (x - np.float32([38, 127]) / 128) ** 2]
    # The quantizers' errors are found in float32.
    np.testing.assert_allclose(found.itself, [np.sum(w) for w in wanted], rtol=1e-4)


def outliers_that_no_weight_meets() -> tuple[Graph, dict]:
    """Channel 0 has all outliers, and nearly zero weights."""
    g = Graph("net")
    weights = RNG.normal(size=(8, 4)).astype(np.float32)
    weights[0] = 1e-4
    x = g.input("x", "float32", (None, 8))
    g.outputs["y"] = g.add("matmul", x, g.const(weights, "w"), name="fc")
    data = RNG.uniform(-1, 1, (64, 8)).astype(np.float32)
    data[:, 0] *= 7.9
    return g, {"x": data}


@pytest.mark.parametrize(("method", "exponent"), [("max", 4), ("mse", 4), ("output", 7)])
def test_what_a_layer_does_not_take_is_clipped(method, exponent):
    g, data = outliers_that_no_weight_meets()
    insert(g)
    calibrate(g, data, Calibration(method))
    assert g.nodes["x/q8"].attrs["spec"].exponent == exponent


def test_each_layer_counts_relative_to_its_own_signal():
    large = Errors(np.zeros(3), np.array([[1e6, 1e5, 3e5]]))
    small = Errors(np.zeros(3), np.array([[1.0, 0.5, 0.1]]))
    np.testing.assert_allclose(cost([large, small]), [0.6, 0.4])


def test_tensors_of_a_sum_are_relative_to_their_mean_signal():
    none = np.zeros((0, 3))
    large, small = Errors(np.array([10.0, 1, 2]), none), Errors(np.array([2.0, 2, 0]), none)
    np.testing.assert_allclose(cost([large, small]), [0.5, 1 / 3])


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_leaves_no_number_is_the_worst():
    """A coarse step gives zeros, whose logarithm is infinite, so only fine steps remain."""
    g = Graph("net")
    x = g.add("relu", g.add("matmul", g.input("x", "float32", (None, 4)), const(g, 4, 2)))
    g.outputs["y"] = g.add(
        "matmul", g.add("log", x, name="logged"), g.const(np.float32([[1, -1], [-2, 3]]))
    )
    insert(g)
    spiky = RNG.uniform(0.02, 1, (200, 2)).astype(np.float32)
    spiky[0], spiky[1] = 9, 0.02
    consumers = consumers_of(g, g.nodes["logged"].inputs[0], constant_in(g))
    assert ITSELF not in consumers
    spec = QuantSpec(8, False, "activation")
    assert exponent_by_output([spiky], spec, 4, consumers) > 4
    nothing = np.zeros((2, 2), np.float32)
    assert exponent_by_output([nothing], spec, 4, consumers) == 4


def test_zeros_have_the_scale_of_one():
    g, data = outliers_that_no_weight_meets()
    insert(g)
    calibrate(g, {"x": np.zeros_like(data["x"])}, Calibration("output"))
    assert g.nodes["x/q8"].attrs["spec"].exponent == 8
