"""A training graph computes what inference computes, to the bit, before and after it learns."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.errors import UnsupportedError
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.ir.types import QuantSpec
from qgraph.passes import PassManager
from qgraph.quant.calibrate import calibrate
from qgraph.recipes import static
from qgraph.train.forward import Forward
from qgraph.train.model import TrainingGraph
from qgraph.transforms.wrap_accumulators import WrapAccumulators
from tests.helpers.evaluate import random_feeds
from tests.helpers.generators.graphs import random_graph
from tests.helpers.quantized import PROFILES

TRAINABLE = (
    "int8", "int4", "int32-bias", "half_up", "half_away", "floor", "double", "per-channel",
    "per-channel-int32", "wrap",
)  # fmt: skip


def calibrated(seed: int, profile: str = "int8", layers: int = 6) -> tuple[Graph, dict]:
    graph = random_graph(seed, layers, "float32")
    feeds = random_feeds(graph, seed, batch=8)
    PassManager(static(PROFILES[profile])).run(graph)
    calibrate(graph, feeds)
    return graph, feeds


def outputs(training: TrainingGraph, feeds: dict) -> dict[str, np.ndarray]:
    run = tf.function(training)
    return {name: value.numpy() for name, value in run(tensors(feeds)).items()}


def tensors(feeds: dict) -> dict:
    return {name: tf.constant(value) for name, value in feeds.items()}


def assert_is_inference(training: TrainingGraph, feeds: dict) -> None:
    found, graph = outputs(training, feeds), training.finalized()
    emitted = TFProgram(emit_graph_def(graph)).run(feeds, list(graph.outputs))
    reference = Reference(graph).outputs(feeds)
    for (name, value), wanted in zip(found.items(), emitted, strict=True):
        np.testing.assert_array_equal(value, wanted, err_msg=name)
        np.testing.assert_array_equal(value, reference[name], err_msg=name)


@pytest.mark.parametrize("profile", TRAINABLE)
@pytest.mark.parametrize("seed", range(2))
def test_what_is_not_trained_yet_is_inference(seed, profile):
    graph, feeds = calibrated(seed, profile)
    training = TrainingGraph(graph)
    assert_is_inference(training, feeds)
    assert print_graph(training.finalized()) == print_graph(graph)


@pytest.mark.parametrize(
    "profile", ["int8", "int32-bias", "double", "per-channel", "per-channel-int32", "wrap"]
)
@pytest.mark.parametrize("seed", range(2))
def test_wherever_the_variables_go(seed, profile):
    graph, feeds = calibrated(seed, profile)
    training, rng = TrainingGraph(graph), np.random.default_rng(seed)
    for variable in training.kernels:
        noise = rng.normal(size=variable.shape) * np.abs(variable.numpy()).max() / 10
        variable.assign_add(noise.astype(np.float32))
    for variable in training.thresholds:
        variable.assign_add(rng.uniform(-1, 1, variable.shape))
    assert_is_inference(training, feeds)


def test_weights_and_thresholds_learn_from_the_float_network():
    rng, floating = np.random.default_rng(0), Graph("mlp")
    x = floating.input("x", "float32", (None, 8))
    for i, shape in enumerate([(8, 32), (32, 32), (32, 4)]):
        x = floating.add("relu", x) if i else x
        x = floating.add("matmul", x, floating.const(rng.normal(size=shape).astype("float32")))
    floating.outputs["y"] = x
    feeds = {"x": rng.normal(size=(128, 8)).astype("float32")}
    graph = floating.copy()
    PassManager(static(PROFILES["int4"])).run(graph)
    calibrate(graph, feeds)
    training, fed = TrainingGraph(graph), tensors(feeds)
    variables = [*training.kernels, *training.thresholds]
    wanted = Forward(floating)(fed)[floating.outputs["y"]]
    optimizer = tf.keras.optimizers.Adam(3e-3)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((training(fed)["y"] - wanted) ** 2)
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    losses = [float(step()) for _ in range(200)]
    assert np.mean(losses[-10:]) < 0.5 * losses[0]
    assert_is_inference(training, feeds)


@pytest.mark.parametrize("exponent", [9, 0, -1, -2, -3, -4])
def test_relu6_on_a_grid_lets_gradients_through_inside_only(exponent):
    graph = Graph("relu6")
    x = graph.input("x", "float32", (None, 8))
    spec = QuantSpec(16, signed=True, role="internal", exponent=exponent)
    x = graph.add("quantize", x, name="q", attrs={"spec": spec})
    graph.outputs["y"] = graph.add("relu6", x)
    training = TrainingGraph(graph)
    fed = tf.constant([[-3.0, 0.0, 0.25, 2.0, 4.0, 5.75, 6.0, 12.0]])
    with tf.GradientTape() as tape:
        tape.watch(fed)
        y = training({"x": fed})["y"]
    on_grid = np.rint(np.ldexp(fed.numpy(), exponent)) * 2.0**-exponent
    highest = np.rint(np.ldexp(6.0, exponent)) * 2.0**-exponent
    np.testing.assert_array_equal(y, np.clip(on_grid, 0, highest))
    np.testing.assert_array_equal(tape.gradient(y, fed), (on_grid > 0) & (on_grid < highest))
    assert np.isnan(training({"x": tf.fill([1, 8], np.nan)})["y"]).all()


def test_accumulators_that_wrap_are_refused():
    graph, _ = calibrated(0, "narrow")
    PassManager((WrapAccumulators(14),)).run(graph)
    with pytest.raises(UnsupportedError, match="accumulators that wrap cannot be trained") as found:
        TrainingGraph(graph)
    assert "accumulator.overflow: error" in str(found.value)


def wide_layer(rng: np.random.Generator) -> tuple[Graph, dict]:
    """A matrix product whose sums float32 does not hold, and what follows it."""
    graph = Graph("wide")
    x = graph.input("x", "float32", (None, 8192))
    weights = graph.const(rng.uniform(0.5, 1, (8192, 6)).astype("float32"))
    bias = graph.const(rng.uniform(-1, 1, 6).astype("float32"))
    y = graph.add("bias_add", graph.add("matmul", x, weights), bias)
    graph.outputs["y"] = graph.add("relu", y)
    feeds = {"x": rng.uniform(0.5, 1, (64, 8192)).astype("float32")}
    PassManager(static(PROFILES["int32-bias"])).run(graph)
    calibrate(graph, feeds)
    return graph, feeds


def test_sums_that_float32_does_not_hold_are_exact_too():
    graph, feeds = wide_layer(np.random.default_rng(0))
    training = TrainingGraph(graph)
    assert len(training.wide) == len(training.wide_now()) == 3
    assert_is_inference(training, feeds)
    # The bits behind 2^24 count: what float32 makes of the sums is not what the hardware has.
    (product,) = (node.name for node in graph.topological() if node.op == "matmul")
    exact = training.values(tensors(feeds), wide=training.wide)[0][product]
    assert np.any(exact.numpy() != exact.numpy().astype("float32"))


def test_what_is_wide_for_some_weights_is_exact_for_all():
    graph, feeds = wide_layer(np.random.default_rng(0))
    training = TrainingGraph(graph)
    training.kernels[0].assign(training.kernels[0] / 100)  # under the scale that it has
    assert training.wide_now() < training.wide
    assert_is_inference(training, feeds)
    with tf.GradientTape() as tape:
        (y,) = training(tensors(feeds)).values()
    assert all(g is not None for g in tape.gradient(y, [*training.kernels, *training.thresholds]))
