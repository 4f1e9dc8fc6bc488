"""Networks of tiny and of huge numbers are quantized as well as those of magnitude 1."""

import numpy as np
import pytest

import qgraph
from qgraph.errors import CalibrationError, ExactnessError
from qgraph.ir.graph import Graph
from tests.helpers.layers import WINDOW
from tests.helpers.quantized import assert_tf_equals_reference

X = np.random.default_rng(1).uniform(-1, 1, (32, 6, 6, 3))
KINDS = ("plain", "leaky", "add", "pool", "depthwise", "norm", "layer_norm", "concat", "softmax")
MAGNITUDES = [(1e-12, 1.0), (1e12, 1.0), (1.0, 1e-12), (1.0, 1e12), (1e-12, 1e-12), (1e12, 1e-12)]


def network(kind: str, inputs: float = 1.0, weights: float = 1.0, epsilon: float = 0.0) -> Graph:
    """Two layers and a classifier for inputs of a magnitude; `weights` is that of the first layer.

    Biases and norms are scaled along, so that the function is the same except its unit.
    epsilon: of the layer norm, scaled along if not given.
    """
    rng, g, size = np.random.default_rng(0), Graph(kind), inputs * weights
    x = g.input("x", "float32", (None, 6, 6, 3))

    def const(value: np.ndarray, scale: float) -> str:
        return g.const((value * scale).astype(np.float32), f"c{len(g.nodes)}")

    def layer(y: str, filters: int, scale: float = 1.0) -> str:
        channels = g.types[y].shape[-1]
        shape = (3, 3, channels, filters)
        op = "depthwise_conv2d" if kind == "depthwise" and y != "x" else "conv2d"
        shape = (3, 3, channels, 1) if op == "depthwise_conv2d" else shape
        y = g.add(op, y, const(rng.normal(0, 0.3, shape), scale), attrs=WINDOW)
        if kind != "norm":
            return g.add("bias_add", y, const(rng.normal(0, 0.2, filters), size))
        parts = [const(rng.uniform(0.5, 1.5, filters), size) for _ in range(3)]
        variance = const(rng.uniform(0.5, 2, filters), size**2)
        return g.add("batch_norm", y, *parts, variance, attrs={"epsilon": 1e-3 * size**2})

    y = g.add("relu", layer(x, 5, weights))
    if kind == "leaky":
        y = g.add("leaky_relu", layer(y, 5), attrs={"alpha": 0.2})
    elif kind == "add":
        y = g.add("relu", g.add("add", y, layer(y, 5)))
    elif kind == "concat":
        y = g.add("concat", y, layer(y, 5), attrs={"axis": 3})
    elif kind == "pool":
        attrs = {"ksize": (2, 2), "strides": (2, 2), "padding": "valid"}
        y = g.add("avg_pool", layer(y, 5), attrs=attrs)
    elif kind == "layer_norm":
        parts = [const(rng.uniform(0.5, 1.5, 5), 1.0) for _ in range(2)]
        y = g.add("layer_norm", y, *parts, attrs={"epsilon": epsilon or 1e-3 * size**2})
        size = 1.0
    else:
        y = g.add("relu", layer(y, 5))
    y = g.add("mean", y, attrs={"axes": (1, 2), "keepdims": False})
    logits = 1 / size if kind == "softmax" else 1.0
    y = g.add("matmul", y, const(rng.normal(0, 0.5, (g.types[y].shape[-1], 4)), logits))
    y = g.add("bias_add", y, const(rng.normal(0, 0.2, 4), size * logits))
    g.outputs["y"] = g.add("softmax", y, attrs={"axis": 1}) if kind == "softmax" else y
    return g


def made(kind: str, inputs: float = 1.0, weights: float = 1.0, **options) -> qgraph.Quantized:
    samples = {"x": (X * inputs).astype(np.float32)}
    return qgraph.quantize(network(kind, inputs, weights), samples, effort="plain", **options)


def sqnr(found: qgraph.Quantized) -> float:
    return found.facts.agreement.sqnr


@pytest.mark.parametrize("profile", ["graffitist-int8", "int32-bias"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_magnitude_costs_no_accuracy(kind, profile):
    """Powers of ten are not powers of two: ranges lie elsewhere between two thresholds."""
    usual = sqnr(made(kind, profile=profile))
    found = [sqnr(made(kind, *sizes, profile=profile)) for sizes in MAGNITUDES]
    assert min(found) > usual - 6 and usual > 25


@pytest.mark.parametrize("method", ["mse", "output", "percentile", "max"])
def test_no_method_depends_on_the_magnitude(method):
    usual = sqnr(made("add", method=method))
    assert sqnr(made("add", 1e-12, 1e-12, method=method)) > usual - 6


@pytest.mark.parametrize("kind", ["add", "softmax"])
def test_steps_of_static_mode_do_not_depend_on_the_magnitude(kind):
    plan = "equalize=biases,reconstruct,correct-bias,method=mse"
    found = []
    for size in (1.0, 1e-12, 1e12):
        samples = {"x": (X * size).astype(np.float32)}
        found.append(sqnr(qgraph.quantize(network(kind, size), samples, plan=plan)))
    assert min(found) > found[0] - 6


@pytest.mark.parametrize("sizes", [(1e-12, 1e-12), (1e12, 1e12)])
def test_tensorflow_computes_the_same_codes(sizes):
    found = made("add", *sizes)
    assert assert_tf_equals_reference(found.graph, {"x": (X[:4] * sizes[0]).astype(np.float32)})


@pytest.mark.parametrize("epsilon", [1e-3, 1e-5, 1e-12])
@pytest.mark.parametrize("size", [1e-4, 1e-12])
def test_a_layer_norm_of_numbers_far_below_its_epsilon(size, epsilon):
    """Only its offset is left; the input's unit may be coarse beside the root of epsilon."""
    samples = {"x": (X * size).astype(np.float32)}
    graph = network("layer_norm", size, epsilon=epsilon)
    assert sqnr(qgraph.quantize(graph, samples, effort="plain")) > 30


@pytest.mark.parametrize("profile", ["graffitist-int8", "int32-bias"])
@pytest.mark.parametrize("sizes", [(1e-19, 1e-18), (1e-18, 1e-18), (1e19, 1e19)])
def test_past_the_limits_of_exponents_the_tensor_is_named(sizes, profile):
    """float32 has no scale for it: neither for codes, nor for sums in between."""
    limits = r"^\S+: (exponent|its codes go up to|NaN or infinite on the calibration data)"
    with pytest.raises((ExactnessError, CalibrationError), match=limits):
        made("plain", *sizes, profile=profile)


@pytest.mark.parametrize("size", [2.0**-60, 2.0**63])
def test_sums_without_a_bias_are_held_to_the_same_limits(size):
    """No quantizer is past a limit, but what lies between two of them is."""
    g = Graph("net")
    w = (np.random.default_rng(0).uniform(-1, 1, (16, 4)) * size).astype(np.float32)
    y = g.add("matmul", g.input("x", "float32", (None, 16)), g.const(w, "w"), name="fc")
    g.outputs["y"] = g.add("relu", y)
    x = (np.random.default_rng(1).uniform(-1, 1, (32, 16)) * size).astype(np.float32)
    with pytest.raises(ExactnessError, match=r"^fc: (exponent|its codes go up to)"):
        qgraph.quantize(g, {"x": x}, effort="plain", profile="int32-bias")
