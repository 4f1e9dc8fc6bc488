"""Batch norms and the ops behind a layer as fused ops: the same numbers as the separate ones."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from qgraph.compiler import quantize
from qgraph.frontends import load_keras
from qgraph.train import fused
from qgraph.train.folded import norms_of
from qgraph.train.model import TrainingGraph
from qgraph.train.normed_epilogue import norm_ops
from qgraph.train.tqt import ScaledOps, tqt_with
from tests.helpers.retraining import images, keras_network

SHAPES = [(7, 1), (3, 5, 5, 12), (2, 40, 40, 16), (9, 30, 40, 33), (50, 1100)]
ATTRIBUTES = {
    "inner_bits": 8,
    "inner_signed": True,
    "bits": 4,
    "signed": False,
    "rounding": "half_even",
}

pytestmark = pytest.mark.skipif(norm_ops() is None, reason="the fused ops are not built")


def ops():
    return fused.fused_ops().ops


def samples(*shape):
    """x and g, and vectors: bias, high, centre, scale, shift."""
    rng = np.random.default_rng(sum(shape))
    x, g = rng.normal(0.5, 0.8, (2, *shape)).astype(np.float32)
    bias, high, centre, scale, shift = rng.uniform(0.1, 1.4, (5, shape[-1])).astype(np.float32)
    return x, g, (bias, high), (centre, scale, shift)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("activation", ["none", "relu", "clip"])
def test_the_epilogue_of_a_normalized_tensor(activation, shape) -> None:
    """Equal to the bit, except sums of the norm, which TensorFlow adds in another order."""
    x, g, (bias, high), norm = samples(*shape)
    centre, scale, shift = norm
    others = (bias, high if activation == "clip" else [], 0.3, 0.7)
    given = {**ATTRIBUTES, "activation": activation}
    normalized = (x - centre) * scale + shift
    y = ops().qgraph_epilogue(normalized, *others, **given)
    by_normalized, *wanted = ops().qgraph_epilogue_grad(g, normalized, *others, **given)
    for threads in (1, 3):
        fused.set_threads(threads)
        found = ops().qgraph_normed_epilogue(x, *others, *norm, **given)
        np.testing.assert_array_equal(found, y)
        by_x, *by_others, by_scale, by_shift = ops().qgraph_normed_epilogue_grad(
            g, x, *others, *norm, **given
        )
        np.testing.assert_array_equal(by_x, by_normalized * scale)
        for a, b in zip(by_others, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
        wide = by_normalized.numpy().astype(np.float64)
        axes = tuple(range(len(shape) - 1))
        np.testing.assert_allclose(by_shift, wide.sum(axes), rtol=1e-6, atol=1e-9)
        products = wide * (x - centre)
        np.testing.assert_allclose(by_scale, products.sum(axes), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_moments_of_channels(shape) -> None:
    x, _, (origin, _), _ = samples(*shape)
    found = []
    for threads in (1, 3):
        fused.set_threads(threads)
        found.append([v.numpy() for v in ops().qgraph_moments(x + 100, origin + 100)])
    axes, wide = tuple(range(len(shape) - 1)), (x + 100).astype(np.float64)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0][0], wide.mean(axes), rtol=1e-7)
    np.testing.assert_allclose(found[0][1], wide.var(axes), rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_normalized_tensor_is_added(shape) -> None:
    x, g, _, (centre, scale, shift) = samples(*shape)
    found = ops().qgraph_add_normalized(g, x, centre, scale, shift)
    np.testing.assert_array_equal(found, g + ((x - centre) * scale + shift))


def test_shapes_that_do_not_fit() -> None:
    x, short = tf.zeros([5, 3]), tf.zeros([2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="last axis of x"):
        ops().qgraph_moments(x, short)
    with pytest.raises(tf.errors.InvalidArgumentError, match="last axis of x"):
        ops().qgraph_add_normalized(x, x, short, short, short)
    with pytest.raises(tf.errors.InvalidArgumentError, match="last axis of x"):
        full = tf.zeros([3])
        given = {**ATTRIBUTES, "activation": "relu"}
        ops().qgraph_normed_epilogue(x, full, [], 0.3, 0.7, full, short, full, **given)


def learned(result, ops: ScaledOps):
    """Outputs, updates and gradients of a step whose batch norms use the batch's statistics."""
    training = TrainingGraph(result.graph, norms_of(result.floating), kind=tqt_with(ops))
    rng = np.random.default_rng(2)
    for gamma in training.gammas:  # also negative, and one that is switched off
        gamma.assign(rng.uniform(0.5, 2, gamma.shape) * rng.choice([-1, 1], gamma.shape))
    training.gammas[0].assign(tf.tensor_scatter_nd_update(training.gammas[0], [[1]], [0.0]))
    variables = [*training.kernels, *training.gammas, *training.thresholds]
    outputs = list(result.graph.outputs.values())

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            values, updates = training.values(
                {result.graph.inputs[0]: x}, batch_statistics=True, wanted=outputs
            )
            y = tf.cast(values[outputs[0]], tf.float32)
            loss = tf.reduce_sum(y * tf.cos(y))
        return y, [value for _, value in updates], tape.gradient(loss, variables)

    x = tf.constant(images(32))
    made = step(x)
    kinds = {op.type for op in step.get_concrete_function(x).graph.get_operations()}
    return made, kinds


def test_a_graph_learns_the_same() -> None:
    """Up to rounding: TensorFlow's batch norm is in float32, and scales before it subtracts."""
    result = quantize(load_keras(keras_network()), images(32), mode="retrain")
    (y, updates, gradients), kinds = learned(result, ScaledOps())
    (wanted, wanted_updates, wanted_gradients), plain = learned(
        result, ScaledOps(normed=lambda: None)
    )
    assert "QgraphNormedEpilogueGrad" in kinds
    assert "QgraphNormedEpilogue" not in plain
    assert "FusedBatchNormV3" not in kinds
    step = float(np.abs(np.diff(np.unique(wanted))).min())
    assert np.abs(y - wanted).max() <= step  # a value between two codes may round to the other
    assert np.mean(y != wanted) < 0.02
    for a, b in zip(updates, wanted_updates, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(gradients, wanted_gradients, strict=True):
        size = float(tf.norm(b))
        assert float(tf.norm(a - b)) <= 0.02 * size + 1e-4
