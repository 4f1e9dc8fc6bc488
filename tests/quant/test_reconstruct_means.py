"""Weights do not make up for mean errors, and are not fitted to what few samples say by chance."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.quant.paired import quantized_constant_of
from qgraph.quant.reconstruction import layer_codes
from qgraph.quant.reconstruction.layer_codes import LayerCodes
from qgraph.quant.reconstruction.layer_rows import LayerRows
from qgraph.quant.reconstruction.output_moments import OutputMoments, RowErrors
from qgraph.quant.reconstruction.reconstruct import reconstruct_weights
from tests.helpers.quantized import PROFILES, assert_tf_equals_reference, quantize
from tests.quant.test_reconstruct import LAYERS, layer, normal, samples


def biased(op: str, w: np.ndarray, channels: int) -> Graph:
    g = layer(op, w, channels)
    b = g.const(np.linspace(-1, 1, w.shape[-1]).astype(np.float32), "b")
    g.outputs["y"] = g.add("bias_add", "layer", b, name="biased")
    return g


def biased_error(graph: Graph, floating: Graph, data: dict) -> np.ndarray:
    wanted, found = (evaluate(g, data, ["biased"])["biased"] for g in (floating, graph))
    return (found.astype(np.float64) - wanted).reshape(-1, wanted.shape[-1])


@pytest.mark.parametrize("profile", ["int8", "int32-bias", "per-channel"])
def test_the_bias_takes_the_mean_error(profile):
    """All inputs are near 40; without the bias, weights would only compensate for the mean."""
    floating = biased("conv2d", normal(3, 3, 2, 4), 2)
    rng = np.random.default_rng(3)
    data = {"x": (40 + 0.5 * rng.normal(size=(24, 6, 5, 2))).astype(np.float32)}
    squares = {}
    for biases in (False, True):
        graph = quantize(floating.copy(), PROFILES[profile], data)
        reconstruct_weights(graph, floating, data, finer=0, biases=biases)
        squares[biases] = (biased_error(graph, floating, data) ** 2).sum()
    quantizer, _ = quantized_constant_of(graph, graph.nodes["biased"])
    step = 2.0 ** -np.min(quantizer.attrs["spec"].exponent)
    assert np.abs(biased_error(graph, floating, data).mean(axis=0)).max() <= step
    assert squares[True] < squares[False]
    assert assert_tf_equals_reference(graph, data) > 1


def test_a_bias_that_layers_share_stays_shared():
    floating = Graph("two")
    x, b = floating.input("x", "float32", (None, 4)), floating.const(np.ones(4, np.float32), "b")
    for name in ("one", "two"):
        w = floating.const(normal(4, 4), f"{name}/w")
        x = floating.add("bias_add", floating.add("matmul", x, w, name=name), b, name=f"{name}/b")
    floating.outputs["y"] = x
    data = {"x": normal(40, 4)}
    graph = quantize(floating.copy(), PROFILES["int8"], data)
    before = [node.name for node in graph.nodes.values() if node.op == "const"]
    reconstruct_weights(graph, floating, data)
    assert [node.name for node in graph.nodes.values() if node.op == "const"] == before
    assert (graph.constant("b") == 1).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_best_share_has_the_least_error(seed):
    rng = np.random.default_rng(seed)
    x, rest, off = (
        rng.normal(size=size).astype(np.float32) for size in ((2, 9, 5), (2, 9, 3), (2, 5, 3))
    )
    rest += np.float32(0.4 * (seed - 1)) * x @ off
    shares = np.linspace(0, 1, 101)
    for errors in (RowErrors(x, rest), OutputMoments.of(x, rest, map)):
        found = errors.best_share(off.astype(np.float64), map)
        sums = [errors.errors(share * off.astype(np.float64), map).sum() for share in shares]
        assert found == pytest.approx(shares[int(np.argmin(sums))], abs=0.01)


@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-9])
def test_the_best_share_of_what_rounding_hides_is_a_share(size):
    """The square of `x @ off` is below the last digit of the sums of errors."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        x, rest = rng.normal(size=(2, 2, 9, 3)).astype(np.float32)
        off = np.eye(3)[None].repeat(2, 0)
        for errors in (RowErrors, partial(OutputMoments.of, each=map)):
            found = errors(x * np.float32(size), rest).best_share(off, map)
            assert 0 <= found <= 1


@pytest.mark.parametrize("block", [4096, 16])
def test_few_samples_are_not_fitted_where_that_does_not_help_others(monkeypatch, block):
    """The error is independent of the inputs, so a fit increases the error on other samples."""
    monkeypatch.setattr(layer_codes, "BLOCK", block)
    rng = np.random.default_rng(4)
    w = normal(32, 4)
    errors = {}
    x, noise = rng.normal(size=(1, 60, 32)).astype(np.float32), rng.normal(size=(1, 60, 4))
    rows = LayerRows(x, noise.astype(np.float32), slice(0, 45), slice(45, 60), 1.0)
    spec = replace(quantize(LAYERS["matmul"].copy(), PROFILES["int8"], samples(LAYERS["matmul"], 8))
                   .nodes["w/q8"].attrs["spec"], exponent=12, bits=16)  # fmt: skip
    for held_out in (True, False):
        seen = rows if held_out else replace(rows, checked=rows.used)
        codes = LayerCodes.of(seen, w[None], None, map)
        errors[held_out] = np.abs(codes._rounded(spec, map) - w).mean()
    assert errors[True] < 0.2 * errors[False]
