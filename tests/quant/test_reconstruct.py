"""Weights rounded for the layer's output: never worse where it was measured, always on the grid."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph import kernels
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Moments
from qgraph.ir.verify import verify
from qgraph.numerics import quantize as codes_of
from qgraph.quant.paired import quantized_constant_of
from qgraph.quant.reconstruction import layer_codes
from qgraph.quant.reconstruction.layer_codes import LayerCodes
from qgraph.quant.reconstruction.reconstruct import reconstruct_weights
from qgraph.quant.reconstruction.rounding import QuadraticError
from tests.helpers.quantized import PROFILES, assert_tf_equals_reference, quantize
from tests.quant.test_paired import pair

RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def problem(seed: int, groups: int, k: int, n: int):
    """A random quadratic error, inputs correlated; targets within a few steps."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(groups, 3 * k, k)) + 2 * rng.normal(size=(groups, 3 * k, 1))
    return rng.uniform(-6, 6, (groups, k, n)), np.swapaxes(x, 1, 2) @ x + 1e-3 * np.eye(k)


def quadratic_error(codes, v, hessian) -> np.ndarray:
    """`(q - v)^T H (q - v)` for each column."""
    return np.einsum("gkn,gkn->gn", codes - v, hessian @ (codes - v))


# -- the solver ------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 80), st.integers(1, 4))
def test_descent_never_raises_the_error_and_ends_where_no_step_lowers_it(seed, groups, k, n):
    v, h = problem(seed, groups, k, n)
    start = np.clip(np.rint(v), -4, 3)
    end = kernels.descend(start, v, h, -4, 3, sweeps=1000)
    best = quadratic_error(end, v, h)
    assert (best <= quadratic_error(start, v, h) * (1 + 1e-12)).all()
    assert (end == np.rint(end)).all() and end.min() >= -4 and end.max() <= 3
    for row, step in itertools.product(range(k), (-1, 1)):
        other = end.copy()
        other[:, row] = np.clip(other[:, row] + step, -4, 3)
        assert (quadratic_error(other, v, h) >= best * (1 - 1e-6) - 1e-9).all()


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 150), st.integers(1, 4))
def test_rounding_in_turn_is_to_nearest_where_inputs_are_independent(seed, groups, k, n):
    rng = np.random.default_rng(seed)
    v = rng.uniform(-10, 10, (groups, k, n))
    h = np.eye(k) * rng.uniform(0.1, 10, (groups, k, 1))
    assert (QuadraticError.of(h).in_turn(v, -8, 7) == np.clip(np.rint(v), -8, 7)).all()


def test_rounding_in_turn_beats_nearest_where_they_are_not():
    v, h = problem(3, 4, 100, 8)
    turned = quadratic_error(QuadraticError.of(h).in_turn(v, -8, 7), v, h)
    assert turned.sum() < 0.5 * quadratic_error(np.rint(v), v, h).sum()


@pytest.mark.parametrize("seed", range(5))
def test_small_problems_are_nearly_solved(seed):
    """The result is not much worse than the best of all 3^6 choices around the target."""
    v, h = problem(seed, 1, 6, 1)
    near = np.array(list(itertools.product((-1, 0, 1), repeat=6)))[:, :, None]
    best = quadratic_error(np.rint(v) + near, v, h).min()
    found = QuadraticError.of(h).rounded(v, -9, 9)
    assert quadratic_error(found, v, h)[0, 0] <= 3 * best


# -- layers ----------------------------------------------------------------------------------


def layer(op: str, w: np.ndarray, channels: int, **attrs) -> Graph:
    g = Graph("layer")
    window = {"strides": (1, 1), "dilations": (1, 1), "padding": "same", **attrs}
    shape = (None, channels) if op == "matmul" else (None, 6, 5, channels)
    x = g.input("x", "float32", shape)
    g.outputs["y"] = g.add(
        op, x, g.const(w, "w"), name="layer", attrs={} if op == "matmul" else window
    )
    return g


LAYERS = {
    "matmul": layer("matmul", normal(12, 3), 12),
    "conv": layer("conv2d", normal(3, 3, 2, 4), 2),
    "strided": layer("conv2d", normal(3, 2, 2, 4), 2, strides=(2, 1)),
    "dilated": layer("conv2d", normal(2, 2, 3, 2), 3, dilations=(2, 1), padding="valid"),
    "grouped": layer("conv2d", normal(3, 3, 2, 6), 4, padding=((1, 0), (2, 1))),
    "depthwise": layer("depthwise_conv2d", normal(3, 3, 4, 1), 4),
    "multiplier": layer("depthwise_conv2d", normal(3, 3, 2, 3), 2),
    "one channel": layer("conv2d", normal(1, 1, 1, 1), 1),
}


def samples(g: Graph, count: int) -> dict:
    """Inputs whose channels and neighbours go together, as those of real layers do."""
    rng = np.random.default_rng(7)
    shape = (count, *g.types["x"].shape[1:])
    image, position = (count, *[1] * (len(shape) - 1)), (*shape[:-1], 1)
    x = rng.normal(size=shape) + rng.normal(0, 2, position) + rng.normal(0, 3, image) + 1
    return {"x": x.astype(np.float32)}


def coarse(floating: Graph, data: dict) -> Graph:
    """Quantized, with weights of 4 bits: the first layer has 8 in all profiles."""
    graph = quantize(floating.copy(), PROFILES["int8"], data)
    spec = graph.nodes["w/q8"].attrs["spec"]
    graph.set_attrs("w/q8", spec=replace(spec, bits=4, exponent=spec.exponent - 4))
    return graph


def output_error(graph: Graph, floating: Graph, data: dict) -> float:
    wanted = evaluate(floating, data, ["layer"])["layer"].astype(np.float64)
    return float(((evaluate(graph, data, ["layer"])["layer"] - wanted) ** 2).sum())


@pytest.mark.parametrize("profile", ["int4", "int8", "per-channel", "half_up"])
@pytest.mark.parametrize("name", LAYERS)
def test_the_error_is_never_above_that_of_rounding_to_nearest(name, profile):
    floating, target = LAYERS[name], PROFILES[profile]
    data = samples(floating, 12)
    graph = quantize(floating.copy(), target, data)
    before = output_error(graph, floating, data)
    done = reconstruct_weights(graph, floating, data)
    assert output_error(graph, floating, data) <= before * (1 + 1e-6)
    assert [r.layer for r in done] == ["layer"] and done[0].after <= done[0].before


@pytest.mark.parametrize("name", ["matmul", "conv", "grouped", "depthwise", "multiplier"])
def test_it_helps(name):
    """Columns, groups and targets must match; if they were mixed up, the error would not fall."""
    floating = LAYERS[name]
    data = samples(floating, 64)
    graph = coarse(floating, data)
    before = output_error(graph, floating, data)
    (done,) = reconstruct_weights(graph, floating, data)
    assert output_error(graph, floating, data) < 0.75 * before
    assert done.after < 0.9 * done.before and done.channels > 0


@pytest.mark.parametrize("profile", ["int8", "int4", "int32-bias", "per-channel", "floor"])
@pytest.mark.parametrize("seed", [2, 3, 11])
def test_weights_are_on_their_grid_and_the_emission_equals_the_reference(seed, profile):
    graph, floating, data = pair(seed, profile)
    old = graph.copy()
    done = reconstruct_weights(graph, floating, data, finer=0)
    verify(graph)
    assert any(r.channels for r in done)
    for name in (r.layer for r in done):
        quantizer, value = quantized_constant_of(graph, graph.nodes[name])
        before, weights = quantized_constant_of(old, old.nodes[name])
        spec = quantizer.attrs["spec"]
        assert spec == before.attrs["spec"] and value.dtype == weights.dtype
        codes = codes_of(value, spec).codes
        if isinstance(spec.exponent, int):
            steps = value.astype(np.float64) * 2.0**spec.exponent
            changed = steps == np.rint(steps)
            assert (changed | (value == weights)).all() and (codes[changed] == steps[changed]).all()
    assert assert_tf_equals_reference(graph, data) > 3


def test_independent_inputs_leave_rounding_to_nearest():
    floating = layer("matmul", normal(8, 5), 8)
    data = {"x": np.eye(8, dtype=np.float32)}
    graph = quantize(floating.copy(), PROFILES["int8"], data)
    spec = graph.nodes["w/q8"].attrs["spec"]
    before = codes_of(floating.constant("w"), spec).codes
    (done,) = reconstruct_weights(graph, floating, data)
    assert (codes_of(graph.constant("w"), spec).codes == before).all()
    assert done.channels == 0 and done.before == done.after


def test_inputs_that_are_always_zero_keep_their_weights():
    floating = LAYERS["matmul"].copy()
    data = samples(floating, 400)
    data["x"][:, 3:7] = 0
    graph = quantize(floating.copy(), PROFILES["int8"], data)
    spec = graph.nodes["w/q8"].attrs["spec"]
    reconstruct_weights(graph, floating, data)
    old, new = (codes_of(g.constant("w"), spec).codes for g in (floating, graph))
    assert (old[3:7] == new[3:7]).all() and (old != new).any()


@pytest.mark.parametrize("name", ["matmul", "conv", "grouped", "depthwise", "multiplier"])
def test_inputs_that_batch_norms_remember_count_though_samples_lack_them(name, monkeypatch):
    """Calibrated on numbers around 0, evaluated on numbers around 3 as in training."""
    floating = LAYERS[name].copy()
    data, channels = samples(floating, 40), floating.types["x"].shape[-1]
    mean, deviation = np.full(channels, 3.0), np.linspace(0.5, 1, channels)
    floating.moments["x"] = Moments(mean, deviation)
    rng, shape = np.random.default_rng(8), (200, *data["x"].shape[1:])
    trained = {"x": rng.normal(mean, deviation, shape).astype(np.float32)}
    data["x"] = rng.normal(size=data["x"].shape).astype(np.float32)
    errors = {}
    for share in (0.0, 0.3):
        monkeypatch.setattr(layer_codes, "STATISTICS_WEIGHT", share)
        graph = coarse(floating, data)
        reconstruct_weights(graph, floating, data)
        errors[share] = output_error(graph, floating, trained)
    assert errors[0.3] < 0.8 * errors[0.0]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("name", LAYERS)
def test_few_samples_and_zero_weights(name, count):
    floating = LAYERS[name].copy()
    data = samples(floating, count)
    graph = quantize(floating.copy(), PROFILES["int8"], data)
    reconstruct_weights(graph, floating, data)
    assert np.isfinite(graph.constant("w")).all()
    floating.set_attrs("w", value=np.zeros_like(floating.constant("w")))
    graph = quantize(floating.copy(), PROFILES["int8"], data)
    (done,) = reconstruct_weights(graph, floating, data)
    assert not graph.constant("w").any() and done.before == done.after == done.channels == 0


def test_wide_layers_are_solved_in_blocks(monkeypatch):
    floating = layer("conv2d", normal(3, 3, 4, 5), 4)
    data = samples(floating, 24)
    errors = []
    for size in (36, 5):
        graph = coarse(floating, data)
        monkeypatch.setattr(layer_codes, "BLOCK", size)
        reconstruct_weights(graph, floating, data, finer=0)
        errors.append(output_error(graph, floating, data))
    assert errors[1] < 1.3 * errors[0]


def test_the_same_twice():
    floating = LAYERS["conv"]
    data = samples(floating, 24)
    graphs = [quantize(floating.copy(), PROFILES["int8"], data) for _ in range(2)]
    for graph in graphs:
        reconstruct_weights(graph, floating, data, samples=100)
    assert (graphs[0].constant("w") == graphs[1].constant("w")).all()


def outlier(op: str = "matmul") -> Graph:
    """One weight whose scale leaves very few codes for the others."""
    w = np.random.default_rng(1).normal(0, 0.1, (24, 3)).astype(np.float32)
    w[0, 0] = 1.01
    return layer(op, w, 24)


def test_a_finer_scale_is_taken_where_the_output_is_nearer():
    floating = outlier()
    data = {"x": np.random.default_rng(2).normal(size=(200, 24)).astype(np.float32)}
    data["x"][:, 0] *= 0.01  # the large weight counts for little
    errors, taken = [], []
    for finer in (0, 1, 3):
        graph = coarse(floating, data)
        spec = graph.nodes["w/q8"].attrs["spec"]
        (done,) = reconstruct_weights(graph, floating, data, finer=finer)
        spec = spec.with_exponent(spec.exponent + done.finer)
        assert graph.nodes["w/q8"].attrs["spec"] == spec
        steps = graph.constant("w") * 2.0**spec.exponent
        assert (steps == codes_of(graph.constant("w"), spec).codes).all()
        errors.append(output_error(graph, floating, data))
        taken.append(done.finer)
    assert taken[0] == 0 and taken[1] == 1 and taken[2] > 1
    assert errors[0] > errors[1] > errors[2]


def test_the_scale_stays_where_a_finer_one_is_worse():
    signs = np.random.default_rng(3).choice(np.float32([-0.9, 0.9, 0.8]), (24, 3))
    floating = layer("matmul", signs, 24)
    graph = quantize(floating.copy(), PROFILES["int8"], samples(floating, 40))
    (done,) = reconstruct_weights(graph, floating, samples(floating, 40), finer=3)
    assert done.finer == 0 and graph.nodes["w/q8"].attrs["spec"].exponent == 7


@pytest.mark.parametrize(("least", "solved"), [(0.5, 1), (0.1, 2)])
def test_a_scale_that_clips_many_weights_is_not_solved_for(monkeypatch, least, solved):
    """Weights up to 1 on a scale for 1: one of half of it would clip most from 0.5 on."""
    w = np.random.default_rng(3).uniform(least, 0.52, (24, 3)).astype(np.float32)
    w[0, 0] = 0.99
    floating, specs = layer("matmul", w, 24), []
    solve = LayerCodes.solve

    def watched(self, spec, *rest):
        specs.append(spec)
        return solve(self, spec, *rest)

    monkeypatch.setattr(LayerCodes, "solve", watched)
    graph = quantize(floating.copy(), PROFILES["int8"], samples(floating, 40))
    reconstruct_weights(graph, floating, samples(floating, 40), finer=1)
    assert len(specs) == solved


def test_the_scale_stays_where_a_bias_follows_it():
    floating = outlier()
    b = floating.const(np.float32([1, 2, 3]), "b")
    floating.outputs["y"] = floating.add("bias_add", "layer", b, name="biased")
    data = {"x": np.random.default_rng(2).normal(size=(200, 24)).astype(np.float32)}
    data["x"][:, 0] *= 0.01
    for profile, moves in (("int8", True), ("int32-bias", False)):
        graph = quantize(floating.copy(), PROFILES[profile], data)
        (done,) = reconstruct_weights(graph, floating, data)
        assert bool(done.finer) == moves
        assert_tf_equals_reference(graph, data)


def test_tiny_weights_have_no_finer_scale():
    """2^-f is the smallest normal float32, though a finer scale would be nearer."""
    floating = outlier()
    floating.set_attrs("w", value=floating.constant("w") * np.float32(2.0**-120))
    x = np.random.default_rng(2).normal(size=(200, 24)).astype(np.float32)
    x[:, 0] *= 0.01
    data = {"x": x * np.float32(2**20)}
    graph = quantize(floating.copy(), replace(PROFILES["int8"], shift=(-62, 62)), data)
    assert graph.nodes["w/q8"].attrs["spec"].exponent == 126
    (done,) = reconstruct_weights(graph, floating, data)
    assert done.finer == 0


@pytest.mark.parametrize("profile", ["int4", "int32-bias", "per-channel", "per-channel-int32"])
@pytest.mark.parametrize("seed", [1, 11])
def test_with_finer_scales_the_emission_equals_the_reference(seed, profile):
    graph, floating, data = pair(seed, profile)
    done = reconstruct_weights(graph, floating, data, finer=2)
    verify(graph)
    assert all(0 <= r.finer <= 2 for r in done)
    assert assert_tf_equals_reference(graph, data) > 3
