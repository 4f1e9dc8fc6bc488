"""Written-out layer norms become one op, which TensorFlow and numpy compute alike."""

import numpy as np
import pytest

from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.transforms.recognize_layer_norm import RecognizeLayerNorm
from tests.helpers.evaluate import random_feeds, run_pass
from tests.helpers.graphs import ops

RNG = np.random.default_rng(0)


def written_out(axes=(-1,), dtype="float64", spread="squared_difference", same=True) -> Graph:
    g = Graph("net")
    x = g.input("x", dtype, (3, 8))
    gamma, beta = (g.const(RNG.normal(size=8).astype(dtype), n) for n in ("gamma", "beta"))
    over = {"axes": axes, "keepdims": True}
    mean = g.add("mean", x, name="mean", attrs=over)
    if spread == "squared_difference":
        squares = g.add("squared_difference", x, mean)
    else:
        squares = g.add("square", g.add("sub", x, mean))
    variance = g.add("mean", squares, name="variance", attrs=over)
    shifted = g.add("add", variance, g.const(np.asarray(1e-6, dtype), "epsilon"))
    m = g.add("mul", g.add("rsqrt", shifted), gamma)
    other = mean if same else g.add("mean", g.add("neg", x), attrs=over)
    shift = g.add("sub", beta, g.add("mul", other, m))
    g.outputs["y"] = g.add("add", g.add("mul", x, m), shift, name="norm")
    return g


def quotient(power="pow") -> Graph:
    """As exporters to ONNX write it."""
    g = Graph("net")
    x = g.input("x", "float64", (3, 8))
    gamma, beta = (g.const(RNG.normal(size=8), n) for n in ("gamma", "beta"))
    over = {"axes": (-1,), "keepdims": True}
    centred = g.add("sub", x, g.add("mean", x, attrs=over))
    factor = g.const(np.asarray(2.0)) if power == "pow" else centred
    variance = g.add("mean", g.add(power, centred, factor), attrs=over)
    deviation = g.add("sqrt", g.add("add", variance, g.const(np.asarray(1e-5))))
    normal = g.add("div", centred, deviation)
    g.outputs["y"] = g.add("add", g.add("mul", normal, gamma), beta, name="norm")
    return g


@pytest.mark.parametrize("spread", ["squared_difference", "square"])
def test_recognised(spread):
    g = written_out(spread=spread)
    run_pass(RecognizeLayerNorm(), g, tolerance=1e-9)
    assert ops(g) == ["input", "layer_norm"] and g.nodes["norm"].attrs == {"epsilon": 1e-6}


@pytest.mark.parametrize("power", ["pow", "mul"])
def test_quotient_recognised(power):
    g = quotient(power)
    run_pass(RecognizeLayerNorm(), g, tolerance=1e-9)
    assert ops(g) == ["input", "layer_norm"] and g.nodes["norm"].attrs == {"epsilon": 1e-5}


def over_axis(axis: int, keepdims=True, centred=True, shape=(None, 6, 5, 4)) -> Graph:
    """As JAX writes it, or with the mean square instead of the variance."""
    g = Graph("net")
    x = g.input("x", "float64", shape)
    channels = [1] * len(shape)
    channels[axis] = shape[axis]
    gamma, beta = (g.const(RNG.normal(size=channels), n) for n in ("gamma", "beta"))
    kept = [-1 if n is None else n for n in shape]
    kept[axis] = 1

    def mean(value):
        total = g.add("mean", value, attrs={"axes": (axis,), "keepdims": keepdims})
        return total if keepdims else g.add("reshape", total, attrs={"shape": tuple(kept)})

    moved = g.add("sub", x, mean(x)) if centred else x
    shifted = g.add("add", mean(g.add("square", moved)), g.const(np.asarray(1e-5)))
    normal = g.add("mul", moved, g.add("mul", g.add("rsqrt", shifted), gamma))
    g.outputs["y"] = g.add("add", normal, beta, name="norm")
    return g


@pytest.mark.parametrize("axis", [1, 2, -2])
@pytest.mark.parametrize("keepdims", [True, False])
def test_other_axes_get_transposes(axis, keepdims):
    g = over_axis(axis, keepdims)
    run_pass(RecognizeLayerNorm(), g, tolerance=1e-9)
    assert sorted(ops(g)) == ["input", "layer_norm", "transpose", "transpose"]


def test_a_root_mean_square_over_another_axis():
    g = over_axis(1, centred=False)
    run_pass(RecognizeLayerNorm(), g, tolerance=1e-9)
    assert {"layer_norm", "transpose"} <= set(ops(g)) and "rsqrt" not in ops(g)


def test_a_mean_that_is_broadcast_along_another_axis_is_not_recognized():
    g = Graph("net")
    x = g.input("x", "float64", (8, 8))
    # Mean and variance of row j, without their axis, are those of column j.
    over = {"axes": (-1,), "keepdims": False}
    moved = g.add("sub", x, g.add("mean", x, attrs=over))
    centred = g.add("sub", x, g.add("mean", x, attrs={"axes": (-1,), "keepdims": True}))
    variance = g.add("mean", g.add("square", centred), attrs=over)
    deviation = g.add("sqrt", g.add("add", variance, g.const(np.asarray(1e-5))))
    g.outputs["y"] = g.add("div", moved, deviation, name="norm")
    before = ops(g)
    run_pass(RecognizeLayerNorm(), g, tolerance=1e-9)
    assert ops(g) == before


def test_the_first_axis_or_another_mean_is_not_recognized():
    for g in (written_out(axes=(0,)), written_out(same=False)):
        before = ops(g)
        run_pass(RecognizeLayerNorm(), g)
        assert ops(g) == before


def test_tensorflow_gives_the_bits_of_the_reference():
    g = written_out(dtype="float32")
    run_pass(RecognizeLayerNorm(), g, tolerance=1e-5)
    feeds = random_feeds(g)
    found = TFProgram(emit_graph_def(g)).run(feeds, ["y"])[0]
    np.testing.assert_array_equal(found, evaluate(g, feeds)["y"])
