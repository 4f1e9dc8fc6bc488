"""Every kind of window that quantization accepts can be trained: exact forwards, with gradients."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.quant.calibrate import calibrate
from qgraph.recipes import static
from qgraph.train.model import TrainingGraph
from tests.helpers.quantized import PROFILES
from tests.train.test_training_graph import assert_is_inference, tensors

WINDOWS = {
    "dilated convolution": ("conv2d", 4, (3, 3, 4, 5), {"dilations": (2, 2)}),
    "unequal dilations": ("conv2d", 4, (3, 3, 4, 5), {"dilations": (1, 3)}),
    "groups": ("conv2d", 4, (3, 3, 2, 6), {}),
    "dilated groups": ("conv2d", 4, (3, 3, 2, 6), {"dilations": (2, 1)}),
    "unequal strides": ("conv2d", 4, (3, 3, 4, 5), {"strides": (1, 2)}),
    "depthwise": ("depthwise_conv2d", 4, (3, 3, 4, 2), {}),
    "dilated depthwise": ("depthwise_conv2d", 4, (3, 3, 4, 2), {"dilations": (2, 2)}),
    "unequally dilated depthwise": ("depthwise_conv2d", 4, (2, 3, 4, 1), {"dilations": (3, 2)}),
    "dilated, of one channel": ("depthwise_conv2d", 1, (3, 3, 1, 2), {"dilations": (2, 2)}),
    "unequal strides depthwise": ("depthwise_conv2d", 4, (3, 3, 4, 1), {"strides": (1, 2)}),
    "padded dilated depthwise": (
        "depthwise_conv2d", 4, (3, 3, 4, 1), {"dilations": (2, 2), "padding": ((2, 1), (0, 3))},
    ),
}  # fmt: skip


def trained_with(op: str, channels: int, shape: tuple, changes: dict) -> tuple[Graph, dict]:
    """A layer of these windows, ReLU, and a dense layer over the means of its channels."""
    rng = np.random.default_rng(0)
    g = Graph("net")
    x = g.input("x", "float32", (None, 9, 10, channels))
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": "same"} | changes
    weights = g.const(rng.normal(size=shape).astype(np.float32), "weights")
    h = g.add("relu", g.add(op, x, weights, name="windows", attrs=attrs))
    h = g.add("mean", h, attrs={"axes": (1, 2), "keepdims": False})
    last = g.const(rng.normal(size=(g.types[h].shape[-1], 3)).astype(np.float32), "last")
    g.outputs["y"] = g.add("matmul", h, last)
    feeds = {"x": rng.normal(size=(4, 9, 10, channels)).astype(np.float32)}
    PassManager(static(PROFILES["int8"])).run(g)
    calibrate(g, feeds)
    return g, feeds


@pytest.mark.parametrize("kind", WINDOWS)
def test_forwards_is_inference_and_weights_get_gradients(kind) -> None:
    graph, feeds = trained_with(*WINDOWS[kind])
    training = TrainingGraph(graph)
    weights = training.state.constants["weights"]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(training(tensors(feeds))["y"] ** 2)
    gradient = tape.gradient(loss, weights)
    assert gradient is not None and gradient.shape == weights.shape
    assert np.all(gradient.numpy() != 0)
    weights.assign_sub(0.01 * gradient / tf.reduce_max(abs(gradient)))
    assert_is_inference(training, feeds)
