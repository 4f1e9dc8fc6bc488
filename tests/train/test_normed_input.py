"""Batch norms of layers' inputs on codes in bytes: the same numbers as on floats."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from qgraph.compiler import quantize
from qgraph.frontends import load_keras
from qgraph.train import fused
from qgraph.train.compact import code_ops
from qgraph.train.folded import norms_of
from qgraph.train.model import TrainingGraph
from tests.helpers.retraining import images, network_of_other_norms

SHAPES = [(7, 1), (3, 5, 5, 12), (2, 40, 40, 16), (9, 30, 40, 33), (50, 1100)]
SIGNED, UNSIGNED = {"bits": 8, "signed": True}, {"bits": 5, "signed": False}
LOG2_T = 2.0  # steps of 2^-5 and 2^-3

pytestmark = pytest.mark.skipif(code_ops() is None, reason="the fused ops are not built")


def samples(attributes, shape):
    """Codes in bytes, their values, a gradient, and vectors of channels."""
    rng = np.random.default_rng(sum(shape))
    bits, signed = attributes["bits"], attributes["signed"]
    low = -(2 ** (bits - 1)) if signed else 0
    codes = rng.integers(low, low + 2**bits, shape)
    x = (codes * 2.0 ** (2 - bits + signed)).astype(np.float32)
    g = rng.normal(size=shape).astype(np.float32)
    vectors = rng.uniform(0.1, 1.4, (3, shape[-1])).astype(np.float32)
    return codes.astype(np.uint8), x, g, vectors


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("attributes", [SIGNED, UNSIGNED])
def test_codes_are_packed_and_normalized(attributes, shape) -> None:
    ops = code_ops()
    codes, x, _, (centre, scale, shift) = samples(attributes, shape)
    for threads in (1, 3):
        fused.set_threads(threads)
        np.testing.assert_array_equal(ops.qgraph_pack_codes(x, LOG2_T, **attributes), codes)
        np.testing.assert_array_equal(ops.qgraph_unpack_codes(codes, LOG2_T, **attributes), x)
        found = ops.qgraph_normalize_codes(codes, LOG2_T, centre, scale, shift, **attributes)
        np.testing.assert_array_equal(found, (x - centre) * scale + shift)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("attributes", [SIGNED, UNSIGNED])
def test_the_gradient_of_a_norm(attributes, shape) -> None:
    codes, x, g, (mean, scale, slope) = samples(attributes, shape)
    found = []
    for threads in (1, 3):
        fused.set_threads(threads)
        found.append(
            code_ops()
            .qgraph_normalize_codes_grad(g, codes, LOG2_T, mean, scale, slope, **attributes)
            .numpy()
        )
    np.testing.assert_array_equal(found[0], found[1])
    wide, off, axes = (
        g.astype(np.float64),
        x.astype(np.float64) - mean,
        tuple(range(len(shape) - 1)),
    )
    count = g.size / shape[-1]
    a = 2 * slope * (wide * off).sum(axes) / count
    b = -scale * wide.sum(axes) / count
    np.testing.assert_allclose(found[0], wide * scale + (off * a + b), rtol=1e-5, atol=1e-5)


def test_shapes_that_do_not_fit() -> None:
    codes, g, short = tf.zeros([5, 3], tf.uint8), tf.zeros([5, 3]), tf.zeros([2])
    ops = code_ops()
    with pytest.raises(tf.errors.InvalidArgumentError, match="last axis of the codes"):
        ops.qgraph_normalize_codes(codes, 1.0, short, short, short, **SIGNED)
    with pytest.raises(tf.errors.InvalidArgumentError, match="last axis of the codes"):
        ops.qgraph_normalize_codes_grad(g, codes, 1.0, short, short, short, **SIGNED)
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape of x"):
        full = tf.zeros([3])
        ops.qgraph_normalize_codes_grad(g[:4], codes, 1.0, full, full, full, **SIGNED)
    with pytest.raises(tf.errors.InvalidArgumentError, match="do not fit into bytes"):
        ops.qgraph_pack_codes(g, 1.0, bits=9, signed=True)


def learned(result, *, codes: bool, frozen: bool):
    """Outputs, updates and gradients of a step, and the ops that computed them."""
    training = TrainingGraph(result.graph, norms_of(result.floating))
    if not codes:
        quantizers = training.quantizers
        quantizers.ops = replace(quantizers.ops, codes=lambda: None, normed=lambda: None)
    variables = [*training.kernels, *training.gammas, *training.thresholds]
    outputs = list(result.graph.outputs.values())

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            values, updates = training.values(
                {result.graph.inputs[0]: x}, batch_statistics=not frozen, wanted=outputs
            )
            y = tf.cast(values[outputs[0]], tf.float32)
            loss = tf.reduce_sum(y * tf.cos(y))
        return y, [value for _, value in updates], tape.gradient(loss, variables)

    x = tf.constant(images(32))
    kinds = Counter(op.type for op in step.get_concrete_function(x).graph.get_operations())
    return step(x), kinds


@pytest.mark.parametrize("frozen", [False, True])
def test_a_graph_learns_the_same(frozen: bool) -> None:
    """Up to rounding: TensorFlow's batch norm and its sums over channels are in float32."""
    result = quantize(load_keras(network_of_other_norms()), images(32), mode="retrain")
    (y, updates, gradients), kinds = learned(result, codes=True, frozen=frozen)
    (wanted, wanted_updates, wanted_gradients), plain = learned(result, codes=False, frozen=frozen)
    assert kinds["QgraphNormalizeCodesGrad"] == (0 if frozen else 3)
    assert "FusedBatchNormV3" not in kinds
    assert plain["FusedBatchNormV3"] == (0 if frozen else 5)
    assert kinds["QgraphNormedEpilogue"] == (1 if frozen else 2)  # a batch norm of its own
    if frozen:
        np.testing.assert_array_equal(y, wanted)
    step = float(np.abs(np.diff(np.unique(wanted))).min())
    assert np.abs(y - wanted).max() <= step  # a value between two codes may round to the other
    assert np.mean(y != wanted) < 0.02
    for a, b in zip(updates, wanted_updates, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(gradients, wanted_gradients, strict=True):
        size = float(tf.norm(b))
        assert float(tf.norm(a - b)) <= (1e-6 if frozen else 0.02) * size + 1e-4
