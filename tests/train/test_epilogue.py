"""The ops behind a layer as one op: the same numbers as the nodes one by one."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from qgraph.ir.graph import Graph
from qgraph.ir.types import ROUNDINGS, QuantSpec
from qgraph.train import fused, tqt
from qgraph.train.epilogue import epilogue_op, epilogues
from qgraph.train.model import TrainingGraph
from qgraph.train.quantizer import quantize
from qgraph.train.tqt import ScaledOps, tqt_with

ACTIVATIONS = ("none", "relu", "relu6", "clip")
INNER, OUTER = 0.3, 0.7  # logarithms of thresholds: grids of 2^-6 and 2^-3, or 2^-4

needs_op = pytest.mark.skipif(epilogue_op() is None, reason="the fused ops of now are not built")


def fused_op(x, bias, high, inner, outer, activation, signed=False, rounding="half_even"):
    clips = activation in ("relu6", "clip")
    return fused.fused_ops().ops.qgraph_epilogue(
        x, bias, high if clips else [], inner, outer, activation=activation, rounding=rounding,
        inner_bits=8, inner_signed=True, bits=4, signed=signed,
    )  # fmt: skip


def op_by_op(x, bias, high, inner, outer, activation, signed=False, rounding="half_even"):
    v = tf.nn.bias_add(quantize(x, inner, 8, True, rounding), bias)
    v = v if activation == "none" else tf.nn.relu(v)
    if activation == "relu6":
        v = tqt._clipped(v, high[0])
    elif activation == "clip":
        v = tf.minimum(v, high)
    return quantize(v, outer, 4, signed, rounding)


def results(run, arrays, g, *arguments):
    """y, and gradients for x, bias, high and both thresholds; ReLU6 ends at 0.75 * 2^3."""
    by = 3 if arguments[0] == "relu6" else 0  # or 6 would be beyond all codes
    tensors = [tf.constant(a * np.float32(2**by)) for a in arrays]
    tensors += [tf.constant(log2_t + by) for log2_t in (INNER, OUTER)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = run(*tensors, *arguments)
    found = tape.gradient(y, tensors, tf.constant(g), tf.UnconnectedGradients.ZERO)
    return [np.asarray(v) for v in (y, *found)]


def assert_same(arrays, g, activation, *arguments) -> None:
    found, wanted = (results(f, arrays, g, activation, *arguments) for f in (fused_op, op_by_op))
    names = ("y", "x", "bias", "high", "inner", "outer")
    sums = np.abs(g).sum()
    for name, a, b in zip(names, found, wanted, strict=True):
        if name == "high" and activation != "clip":
            continue  # no variable is behind it
        if name in ("bias", "high"):  # TensorFlow sums them in float32, in its own order
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6 * sums, err_msg=name)
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


def samples(*shape):
    rng = np.random.default_rng(sum(shape))
    x, g = rng.normal(0, 0.8, (2, *shape)).astype(np.float32)
    x.reshape(-1)[::5] = np.rint(x.reshape(-1)[::5] * 128) / 128
    bias = (np.rint(rng.normal(size=shape[-1]) * 16) / 64).astype(np.float32)
    return [x, bias, np.full(shape[-1], 0.75, np.float32)], g


@needs_op
@pytest.mark.parametrize("shape", [(7, 1), (3, 5, 5, 12), (2, 40, 40, 16), (50, 1100)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_one_op_or_four(activation, shape) -> None:
    arrays, g = samples(*shape)
    if activation == "clip":
        arrays[2][::2] = 1.0
    for threads in (1, 2, 3):
        fused.set_threads(threads)
        assert_same(arrays, g, activation, activation != "relu")


@needs_op
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_rounding(activation, rounding) -> None:
    arrays, g = samples(40, 40, 3)
    assert_same(arrays, g, activation, False, rounding)


@needs_op
@pytest.mark.parametrize("activation", ["none", "relu", "clip"])
def test_what_is_not_finite(activation) -> None:
    arrays, g = samples(100, 3)
    arrays[0][:2, 0] = [np.inf, -np.inf]
    assert_same(arrays, g, activation)
    arrays[0][2, 0] = np.nan
    y, _, _, _, inner, outer = results(fused_op, arrays, g, activation)
    assert np.argwhere(np.isnan(y)).tolist() == [[2, 0]]
    assert np.isnan(inner)
    assert np.isnan(outer)


@needs_op
def test_sums_are_the_same_for_any_number_of_threads() -> None:
    arrays, g = samples(50_000, 12)
    found = []
    for threads in (1, 2, 3):
        fused.set_threads(threads)
        found.append([a.tobytes() for a in results(fused_op, arrays, g, "clip")])
    assert found[0] == found[1] == found[2]


@needs_op
def test_nothing_at_all() -> None:
    arrays, _ = samples(1, 3)
    arrays[0] = arrays[0][:0]
    for found in results(fused_op, arrays, np.zeros((0, 3), np.float32), "clip"):
        assert not found.any()


@needs_op
@pytest.mark.parametrize(
    ("bias", "high", "activation", "what"),
    [(4, 3, "clip", "bias"), (3, 1, "clip", "high"), (3, 0, "relu6", "high")],
)
def test_shapes_that_do_not_fit(bias, high, activation, what) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=what):
        fused_op(tf.zeros([5, 3]), tf.zeros(bias), tf.zeros(high), 0.0, 0.0, activation)


# -- in a graph -------------------------------------------------------------------------------


def layer(activation: str, inner_rounding: str = "half_even") -> Graph:
    """A calibrated layer of 3 inputs and 5 channels."""
    rng, graph = np.random.default_rng(0), Graph("layer")

    def quantized(value: str, bits: int, role: str, exponent: int, rounding="half_even") -> str:
        signed = role != "activation"
        spec = QuantSpec(bits, signed, rounding=rounding, role=role, exponent=exponent)
        return graph.add("quantize", value, attrs={"spec": spec}, name=f"{value}/q")

    def const(name: str, shape: tuple[int, ...], scale: float = 1.0) -> str:
        return graph.const((rng.normal(size=shape) * scale).astype(np.float32), name)

    x = quantized(graph.input("x", "float32", (None, 3)), 8, "input", 5)
    product = graph.add("matmul", x, quantized(const("w", (3, 5)), 8, "weight", 6), name="product")
    v = quantized(product, 16, "internal", 11, inner_rounding)
    v = graph.add("bias_add", v, quantized(const("b", (5,), 0.1), 16, "internal", 11), name="bias")
    if activation == "clip":
        v = graph.add("relu", v, name="relu")
        six = quantized(graph.const(np.full(5, 1.4999, np.float32), "six"), 16, "internal", 11)
        v = graph.add("minimum", v, six, name="least")
    elif activation != "none":
        v = graph.add(activation, v, name=activation)
    graph.outputs["y"] = quantized(v, 8, "activation", 6)
    return graph


def learned(training: TrainingGraph, wanted) -> tuple[np.ndarray, list[np.ndarray], set[str]]:
    """Outputs, gradients for all variables, and the types of ops that gave them."""
    variables = [*training.kernels, *training.thresholds]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            values, _ = training.values({"x": x}, wanted=wanted)
            y = values[training.graph.outputs["y"]]
            loss = tf.reduce_sum(y * tf.cos(y))
        return y, tape.gradient(loss, variables)

    x = tf.constant(np.random.default_rng(1).normal(size=(200, 3)).astype(np.float32) * 2)
    y, gradients = step(x)
    kinds = {op.type for op in step.get_concrete_function(x).graph.get_operations()}
    return y.numpy(), [np.asarray(g) for g in gradients], kinds


@needs_op
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_graph_learns_the_same(activation) -> None:
    training = TrainingGraph(layer(activation))
    all_wanted = learned(training, None)
    found = learned(training, training.graph.outputs.values())
    assert "QgraphEpilogueGrad" in found[2]
    assert "QgraphEpilogue" not in all_wanted[2]
    np.testing.assert_array_equal(found[0], all_wanted[0])
    for a, b in zip(found[1], all_wanted[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert np.any(a)


@needs_op
def test_an_end_learns_its_scale_too() -> None:
    """Clipped values move the threshold of the constant that clips them."""
    training = TrainingGraph(layer("clip"))
    shares = dict(
        zip(training.quantizers.names, learned(training, ["least/q"])[1][-1], strict=True)
    )
    assert shares["six/q"] != 0


@pytest.mark.parametrize("name", ["bias", "relu", "product/q"])
def test_a_value_that_others_take_is_there(name) -> None:
    graph = layer("clip")
    (found,) = epilogues(graph)
    assert found.nodes == ("product/q", "bias", "relu", "least", "least/q")
    training = TrainingGraph(graph)
    values, _ = training.values({"x": tf.ones([1, 3])}, wanted=[name])
    assert name in values
    graph.outputs["inner"] = name
    assert epilogues(graph) == []


def test_two_roundings_stay_two_ops() -> None:
    assert epilogues(layer("relu", "floor")) == []


def test_nodes_run_one_by_one_without_the_op() -> None:
    training = TrainingGraph(layer("relu"), kind=tqt_with(ScaledOps(epilogue=lambda: None)))
    assert "QgraphEpilogue" not in learned(training, training.graph.outputs.values())[2]


def test_no_op_of_others_under_xla() -> None:
    training = TrainingGraph(layer("relu"))
    x = {"x": tf.ones([4, 3])}
    found = tf.function(training, jit_compile=True)(x)["y"]
    np.testing.assert_array_equal(found, training.values(x)[0]["relu/q"])
