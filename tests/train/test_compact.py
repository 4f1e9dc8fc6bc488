"""Layers that keep bytes for the backward pass give the numbers of those that keep floats."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qgraph.compiler import quantize
from qgraph.frontends import load_keras
from qgraph.ir.types import QuantSpec
from qgraph.train.compact import InputCodes, code_ops, coded_inputs, keeping_codes
from qgraph.train.folded import norms_of
from qgraph.train.forward import piece_of
from qgraph.train.model import TrainingGraph
from tests.helpers.quantized import random_network
from tests.helpers.retraining import images, network_of_other_norms

tf = pytest.importorskip("tensorflow")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
@pytest.mark.parametrize("signed", [True, False])
def test_outputs_and_gradients_are_the_same_bits(seed: int, signed: bool) -> None:
    compare(seed, signed)


def test_normalized_inputs_are_not_kept_as_codes() -> None:
    """While the batch norm before a layer uses the statistics of the batch, its input is float."""
    data = images(32)
    result = quantize(load_keras(network_of_other_norms()), data, mode="retrain")
    training = TrainingGraph(result.graph, norms_of(result.floating))
    assert any(layer.input is not None for layer in training.norms.by_layer.values())
    given, wanted = {result.graph.inputs[0]: tf.constant(data)}, [*result.graph.outputs.values()]

    def gradients() -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            values, _ = training.values(given, batch_statistics=True, wanted=wanted)
            y = tf.cast(values[wanted[0]], tf.float32)
            loss = tf.reduce_sum(y * tf.cos(y))
        return [np.asarray(g) for g in tape.gradient(loss, training.kernels)]

    found = gradients()
    training.quantizers.coded_inputs = {}
    for a, b in zip(found, gradients(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b).max())


def test_padding_of_its_own_without_onednn() -> None:
    """oneDNN takes padding into one of the two convolutions, and sums in another order there."""
    script = "from tests.train.test_compact import compare; compare(3, True); compare(3, False)"
    environment = os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def compare(seed: int, signed: bool) -> None:
    """Compare each layer of a random network with and without codes, bit by bit."""
    graph = random_network(seed, "int8")
    found = coded_inputs(graph)
    assert found
    rng = np.random.default_rng(seed)
    for name, quantizer in found.items():
        node, spec = graph.nodes[name], replace(quantizer.attrs["spec"], signed=signed)
        piece = piece_of(graph, node)
        given = _inputs(graph, node, spec, rng)
        log2_t = tf.constant(float(spec.bits - spec.signed - spec.exponent))
        wanted = _run(piece, given)
        for ops in {None, code_ops()}:
            kept = keeping_codes(piece, InputCodes(spec, log2_t, ops))
            for a, b in zip(wanted, _run(kept, given), strict=True):
                assert a.tobytes() == b.tobytes(), name


def _inputs(graph, node, spec: QuantSpec, rng) -> list:
    found = []
    for i, value in enumerate(node.inputs):
        shape = [d or 3 for d in graph.types[value].shape]
        if i == 0:
            codes = rng.integers(spec.lo, spec.hi + 1, shape)
            found.append(tf.constant(codes * 2.0**-spec.exponent, tf.float32))
        else:
            found.append(tf.constant(rng.normal(size=shape), tf.float32))
    return found


def _run(piece, given: list) -> list[np.ndarray]:
    @tf.function(autograph=False)
    def both(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            (y,) = piece(*inputs)
            loss = tf.reduce_sum(tf.sin(y))
        return y, *tape.gradient(loss, inputs)

    return [found.numpy() for found in both(*given)]
