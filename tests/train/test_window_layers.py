"""Every kind of window that quantization accepts can be trained: exact forwards, with gradients."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.quant.calibrate import calibrate
from qgraph.recipes import static
from qgraph.train.model import TrainingGraph
from tests.helpers.layers import WINDOW
from tests.helpers.quantized import PROFILES
from tests.train.test_training_graph import assert_is_inference, tensors

WINDOWS = {
    "dilated convolution": ("conv2d", 4, (3, 3, 4, 5), {"dilations": (2, 2)}),
    "unequal dilations": ("conv2d", 4, (3, 3, 4, 5), {"dilations": (1, 3)}),
    "dilated with strides": ("conv2d", 4, (3, 2, 4, 5), {"dilations": (2, 3), "strides": (2, 2)}),
    "padded dilated convolution": (
        "conv2d", 4, (3, 3, 4, 5), {"dilations": (3, 2), "padding": ((2, 4), (0, 3))},
    ),
    "valid dilated convolution": (
        "conv2d", 4, (3, 3, 4, 5), {"dilations": (2, 2), "padding": "valid"},
    ),
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


def windows(
    op: str, channels: int, shape: tuple, changes: dict, sizes: tuple = (9, 10)
) -> tuple[Graph, dict]:
    """A layer of these windows and ReLU, and images for it."""
    rng = np.random.default_rng(0)
    g = Graph("net")
    x = g.input("x", "float32", (None, *sizes, channels))
    attrs = WINDOW | changes
    weights = g.const(rng.normal(size=shape).astype(np.float32), "weights")
    g.outputs["y"] = g.add("relu", g.add(op, x, weights, name="windows", attrs=attrs))
    return g, {"x": rng.normal(size=(4, 9, 10, channels)).astype(np.float32)}


def trained_with(*kind) -> tuple[Graph, dict]:
    """A layer of these windows, ReLU, and a dense layer over the means of its channels."""
    g, feeds = windows(*kind)
    h = g.add("mean", g.outputs["y"], attrs={"axes": (1, 2), "keepdims": False})
    last = np.random.default_rng(1).normal(size=(g.types[h].shape[-1], 3))
    g.outputs["y"] = g.add("matmul", h, g.const(last.astype(np.float32), "last"))
    PassManager(static(PROFILES["int8"])).run(g)
    calibrate(g, feeds)
    return g, feeds


def gradient_of(training: TrainingGraph, feeds: dict) -> tuple[tf.Variable, tf.Tensor | None]:
    """The weights of the windows, and what a loss gives them."""
    weights = training.weights["weights"]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(training(tensors(feeds))["y"] ** 2)
    return weights, tape.gradient(loss, weights)


@pytest.mark.parametrize("kind", WINDOWS)
def test_forwards_is_inference_and_weights_get_gradients(kind) -> None:
    graph, feeds = trained_with(*WINDOWS[kind])
    training = TrainingGraph(graph)
    weights, gradient = gradient_of(training, feeds)
    assert gradient is not None and gradient.shape == weights.shape
    assert np.all(gradient.numpy() != 0)
    weights.assign_sub(0.01 * gradient / tf.reduce_max(abs(gradient)))
    assert_is_inference(training, feeds)


@pytest.mark.parametrize("kind", [kind for kind in WINDOWS if "dilat" in kind])
def test_dilated_layers_of_images_of_any_size_learn_the_same(kind) -> None:
    """The filter is spread if sizes are unknown; else the image is split into phases."""
    known, free = (
        gradient_of(TrainingGraph(graph), feeds)[1]
        for graph, feeds in (
            windows(*WINDOWS[kind]),
            windows(*WINDOWS[kind], sizes=(None, None)),
        )
    )
    np.testing.assert_allclose(free, known, rtol=1e-4, atol=1e-4)
