"""Integer layer norms in training: inference's numbers, and the gradient of the float norm."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.standardize import (
    StandardizationAttrs,
    result_spec,
    standardization,
    standardized,
)
from qgraph.ir.types import QuantSpec
from qgraph.passes import PassManager
from qgraph.quant.calibrate import calibrate
from qgraph.recipes import static
from qgraph.train.model import TrainingGraph
from qgraph.train.standardize import standardize
from tests.helpers.quantized import INT8, INT32_BIAS
from tests.train.test_training_graph import assert_is_inference


def normed(seed: int, profile) -> tuple[Graph, dict]:
    """Two layers with a layer norm between them, calibrated."""
    rng, graph = np.random.default_rng(seed), Graph("normed")
    x = graph.input("x", "float32", (None, 6))

    def drawn(*shape: int) -> str:
        return graph.const(rng.normal(size=shape).astype("float32"))

    x = graph.add("bias_add", graph.add("matmul", x, drawn(6, 12)), drawn(12))
    x = graph.add("layer_norm", x, drawn(12), drawn(12), name="norm", attrs={"epsilon": 1e-5})
    graph.outputs["y"] = graph.add("matmul", graph.add("relu", x), drawn(12, 4))
    feeds = {"x": rng.normal(size=(16, 6)).astype("float32")}
    PassManager(static(profile)).run(graph)
    calibrate(graph, feeds)
    return graph, feeds


@pytest.mark.parametrize("profile", [INT8, INT32_BIAS], ids=["int8", "int32-bias"])
def test_the_graph_is_that_of_inference_for_any_variables(profile):
    graph, feeds = normed(0, profile)
    training, rng = TrainingGraph(graph), np.random.default_rng(0)
    assert_is_inference(training, feeds)
    for variable in training.kernels:
        noise = rng.normal(size=variable.shape) * np.abs(variable.numpy()).max() / 10
        variable.assign_add(noise.astype(np.float32))
    for variable in training.thresholds:
        variable.assign_add(rng.uniform(-1, 1, variable.shape))
    assert_is_inference(training, feeds)
    before, after = (g.nodes["norm/normal"].attrs["spec"] for g in (graph, training.finalized()))
    assert before == after


@pytest.mark.parametrize("exponent", [-3, 0, 9, 14])
@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-3])
def test_numbers_are_inference_s_and_gradients_the_float_norm_s(exponent, epsilon):
    rng = np.random.default_rng(0)
    codes = rng.integers(-30000, 30000, (20, 8))
    codes[0] = 7
    spec = result_spec(QuantSpec(16, True, "internal"), 8)
    attrs = {"epsilon": epsilon, "domain": QuantSpec(16, True, "internal"), "spec": spec}
    x = tf.constant(np.ldexp(codes, -exponent).astype(np.float32))
    weights = tf.constant(rng.normal(size=(20, 8)).astype(np.float32))

    def plain(x):
        wide = tf.cast(x, tf.float64)
        mean, variance = tf.nn.moments(wide, [-1], keepdims=True)
        return tf.cast((wide - mean) / tf.sqrt(variance + max(epsilon, 1e-300)), tf.float32)

    node = Node("norm", "standardize", ("x",), attrs)
    gradients = []
    for function in (lambda x: standardize(node, x, tf.constant(float(exponent))), plain):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            loss = tf.reduce_sum(y * weights)
        gradients.append(tape.gradient(loss, x).numpy())
        if len(gradients) == 1:
            numbers = standardization(node.typed(StandardizationAttrs), 8, exponent)
            wanted = np.ldexp(standardized(codes, numbers), -spec.exponent)
            np.testing.assert_array_equal(y.numpy(), wanted)
    np.testing.assert_allclose(gradients[0][1:], gradients[1][1:], 1e-4, 1e-6)
    assert np.isfinite(gradients[0]).all() or epsilon == 0
