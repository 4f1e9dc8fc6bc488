"""Layers that keep bytes for the backward pass give the numbers of those that keep floats."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qgraph.ir.types import QuantSpec
from qgraph.train.compact import coded_inputs, keeping_codes
from qgraph.train.forward import piece_of
from tests.helpers.quantized import random_network

tf = pytest.importorskip("tensorflow")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
@pytest.mark.parametrize("signed", [True, False])
def test_outputs_and_gradients_are_the_same_bits(seed: int, signed: bool) -> None:
    compare(seed, signed)


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
        kept = keeping_codes(piece, spec, log2_t)
        for wanted, got in zip(_run(piece, given), _run(kept, given), strict=True):
            assert wanted.tobytes() == got.tobytes(), name


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
