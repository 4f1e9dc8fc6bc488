"""Factors of channels from samples: whose variance counts; kept with exponents."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qgraph
from qgraph.errors import CalibrationError, PassError
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.pass_text import parse_passes, print_passes
from qgraph.passes import PassManager
from qgraph.pipelines import USUAL, pipeline_of
from qgraph.quant import activations
from qgraph.quant.activations import activated_channels
from qgraph.quant.exponents import parse_exponents
from qgraph.quant.noise_balance import LayerSteps, noise_factors
from qgraph.quant.plan import Plan
from qgraph.quant.profile import load_profile
from qgraph.recipes import FLOAT
from qgraph.rewrite.channels import channel_map
from qgraph.rewrite.trace import Trace
from qgraph.static.build import build
from qgraph.static.channel_factors import channel_factors, layer_steps
from qgraph.static.given_exponents import with_exponents
from qgraph.static.preparations import Preparations
from qgraph.transforms.equalize_channels import EqualizeChannels
from tests.helpers.generators.graphs import random_graph
from tests.transforms.test_equalize_channels import outputs

INT8, INT4 = (load_profile(f"graffitist-int{bits}") for bits in (8, 4))
NOISE = Plan(equalize="noise", method="mse")
WINDOW = {"strides": (1, 1), "dilations": (1, 1), "padding": "same"}


def network(size: int | None = None, joined: bool = False) -> Graph:
    """A convolution, a depthwise and a pointwise layer, each with a batch norm and ReLU6.

    joined: another convolution is added behind the first.
    """
    rng = np.random.default_rng(0)
    g = Graph("net")
    x = g.input("x", "float32", (size, 8, 8, 3))

    def layer(op: str, value: str, shape: tuple[int, ...], name: str) -> str:
        w = g.const(rng.normal(0, 0.4, shape).astype(np.float32), f"{name}/w")
        y = g.add(op, value, w, name=name, attrs=WINDOW)
        count = shape[2] if op == "depthwise_conv2d" else shape[3]
        spread = rng.uniform(0.1, 2, (4, count)).astype(np.float32)
        norm = [g.const(v, f"{name}/norm/{i}") for i, v in enumerate(spread)]
        return g.add("relu6", g.add("batch_norm", y, *norm, attrs={"epsilon": 1e-3}))

    y = layer("conv2d", x, (3, 3, 3, 6), "first")
    if joined:
        y = g.add("add", y, layer("conv2d", x, (3, 3, 3, 6), "left"))
    y = layer("depthwise_conv2d", y, (3, 3, 6, 1), "depthwise")
    g.outputs["y"] = layer("conv2d", y, (1, 1, 6, 5), "last")
    return g


def images(count: int = 24, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 8, 8, 3)).astype(np.float32)


def prepared(graph: Graph) -> Graph:
    graph = graph.copy()
    PassManager(FLOAT).run(graph)
    return graph


# -- statistics ----------------------------------------------------------------------------------


def test_variance_and_clipped_share_are_those_behind_the_activation() -> None:
    graph, data = prepared(network()), {"x": images()}
    layers = channel_map(graph).layers
    found = activated_channels(graph, layers, data)
    assert list(found) == [layer.name for layer in layers] and len(found) == 3
    ends = [n.name for n in graph.topological() if n.op == "relu6"]
    for name, end in zip(found, ends, strict=True):
        y = evaluate(graph, data, [end])[end].astype(np.float64)
        y = y.reshape(-1, y.shape[-1])
        np.testing.assert_allclose(found[name].variance, y.var(axis=0), rtol=1e-5)
        np.testing.assert_allclose(found[name].unclipped, ((y > 0) & (y < 6)).mean(axis=0))
        assert 0 < found[name].unclipped.min() < 1


def test_large_samples_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activations, "NUMBERS", 0)
    graph, data = prepared(network()), images(64)
    layers = channel_map(graph).layers
    few = activated_channels(graph, layers, {"x": data})
    wanted = activated_channels(graph, layers, {"x": data[::4]})
    for name, found in few.items():
        assert np.array_equal(found.variance, wanted[name].variance)


def test_other_activations_clip_nothing() -> None:
    g = Graph("net")
    x = g.input("x", "float32", (None, 4))
    w = g.const(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32), "w")
    y = g.add("matmul", x, w, name="layer")
    g.outputs["y"], g.outputs["z"] = g.add("tanh", y), g.add("relu", y)
    data = {"x": np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)}
    found = activated_channels(g, [g.nodes["layer"]], data)["layer"]
    product = data["x"].astype(np.float64) @ g.constant("w")
    np.testing.assert_allclose(found.variance, product.var(axis=0), rtol=1e-5)
    assert np.array_equal(found.unclipped, np.ones(3))


# -- factors -------------------------------------------------------------------------------------


def edges(border: float) -> tuple[Graph, np.ndarray]:
    """A depthwise edge detector behind a channel of mean 1 that hardly varies, beside a usual one.

    Inside, its response is small; at borders, which are padded with zeros, it is `border` times the
    mean, which the batch norm remembers.
    """
    g = Graph("edges")
    x = g.input("x", "float32", (None, 8, 8, 2))
    one = np.eye(2, dtype=np.float32)[None, None]
    y = _normed(
        g, g.add("conv2d", x, g.const(one, "w"), attrs=WINDOW, name="first"), "a", [0.02, 1]
    )
    taps = np.zeros((3, 3, 2, 1), np.float32)
    taps[1, :, 0, 0] = [-border, 0, border]  # 0 where its input is even
    taps[1, 1, 1, 0] = 1
    y = g.add("depthwise_conv2d", y, g.const(taps, "d"), attrs=WINDOW, name="second")
    y = _normed(g, y, "b", [0.5 * border, 1])
    last = np.random.default_rng(0).normal(0, 1, (1, 1, 2, 3)).astype(np.float32)
    y = g.add("conv2d", y, g.const(last, "p"), attrs=WINDOW, name="third")
    g.outputs["y"] = _normed(g, y, "c", [1, 1, 1])
    rng = np.random.default_rng(1)
    data = np.stack([1 + 0.02 * rng.normal(size=(32, 8, 8)), 1 + rng.normal(size=(32, 8, 8))], -1)
    return g, data.astype(np.float32)


def _normed(g: Graph, value: str, name: str, deviations: list[float]) -> str:
    """A batch norm that changes nothing, and remembers mean 1 and these deviations."""
    spread = np.array(deviations, np.float32)
    vectors = (spread, np.ones_like(spread), np.ones_like(spread), spread**2)
    norm = [g.const(v, f"{name}/{i}") for i, v in enumerate(vectors)]
    return g.add("relu6", g.add("batch_norm", value, *norm, attrs={"epsilon": 0.0}))


def test_variance_at_borders_does_not_hide_the_inside() -> None:
    g, data = edges(border=8.0)
    graph = prepared(g)
    measured = np.array(channel_factors(graph, {"x": data})["first"]) / 16
    channels = channel_map(graph)
    remembered = noise_factors(graph, channels)[channels.of("first")]
    # Responses are clipped at borders: what counts is the small response inside.
    assert (remembered[0] - remembered[1]) - (measured[0] - measured[1]) > 0.1


def test_values_that_are_not_finite_are_named_by_the_calibration() -> None:
    data = images()
    data[3, 2, 2, 1] = np.inf
    with np.errstate(all="ignore"), pytest.raises(CalibrationError, match="NaN or infinite"):
        build(network(), INT8, NOISE, {"x": data}, Trace())


@pytest.mark.parametrize("size", [None, 1, 2])
def test_neither_threads_nor_batch_matter(
    monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    graph, found = prepared(network(size)), []
    for cpus in ({0}, {0, 1}):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, cpus=cpus: cpus)
        found.append(channel_factors(graph, {"x": images()}))
    assert found[0] == found[1] == channel_factors(prepared(network()), {"x": images()})


# -- bits ----------------------------------------------------------------------------------------


def test_steps_are_those_of_the_bits_and_the_sign_of_codes() -> None:
    _, quantized = build(network(joined=True), INT4, Plan(), {"x": images()}, Trace())
    fine, coarse = 2.0**-7, 2.0**-3
    assert layer_steps(quantized) == {
        "first": LayerSteps(input=2.0**-7, weights=fine),  # signed inputs
        "left": LayerSteps(input=2.0**-7, weights=fine),
        "depthwise": LayerSteps(input=2.0**-8, weights=coarse),
        "last": LayerSteps(input=2.0**-8, weights=fine),
    }


def test_layers_without_integer_inputs_have_no_steps() -> None:
    assert layer_steps(prepared(network())) == {}


def test_factors_follow_the_bits_of_the_target() -> None:
    shared, data = Preparations(network()), {"x": images()}
    found = [shared.prepared(p, NOISE, data, Trace())[0].factors for p in (INT8, INT4, INT8)]
    assert found[0] == found[2] != found[1]


def test_factors_for_the_bits_of_the_target_leave_less_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = {"x": images()}

    def noise() -> float:
        floating, graph = build(network(), INT4, replace(NOISE, reconstruct=True), data, Trace())
        found, wanted = (
            np.concatenate(list(evaluate(g, data).values())) for g in (graph, floating)
        )
        return float(((found - wanted) ** 2).mean() / (wanted**2).mean())

    known = noise()
    monkeypatch.setattr("qgraph.static.preparations.layer_steps", lambda quantized: {})
    assert known < 0.9 * noise()


# -- the pass ------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 16))
def test_given_factors_keep_the_function(seed: int) -> None:
    graph = random_graph(seed)
    PassManager(FLOAT).run(graph)
    channels = channel_map(graph)
    steps = np.random.default_rng(seed).integers(-48, 49, channels.count)
    steps[channels.frozen] = 0
    factors = {n.name: tuple(steps[channels.of(n.name)].tolist()) for n in channels.layers}
    after = graph.copy()
    EqualizeChannels(factors=factors).run(after)
    assert after.factors == factors == after.copy().factors
    wanted = outputs(graph)
    for name, found in outputs(after).items():
        scale = np.abs(wanted[name]).max(initial=0)
        np.testing.assert_allclose(found, wanted[name], rtol=1e-12, atol=1e-12 * scale)


WRONG = {
    "no layer": ({"nowhere": (0,)}, "no layer of this name"),
    "count": ({"first": (0, 1)}, "has 6 outputs, and 2 factors"),
    "range": ({"first": (0, 0, 0, 0, 0, 193)}, "outside 2\\^-12 to 2\\^12"),
    "output": ({"last": (1, 0, 0, 0, 0)}, "keeps its scale"),
    "shared": ({"left": (1, 0, 0, 0, 0, 0), "first": (0,) * 6}, "differ from those of another"),
}


@pytest.mark.parametrize("case", WRONG)
def test_factors_that_do_not_fit_are_named(case: str) -> None:
    factors, message = WRONG[case]
    with pytest.raises(PassError, match=message) as error:
        EqualizeChannels(factors=factors).run(prepared(network(joined=True)))
    assert error.value.node in factors


def test_the_pass_is_text() -> None:
    step = EqualizeChannels(noise=True, factors={"a/b": (16, -3)})
    assert parse_passes(print_passes([step])) == (step,)


# -- the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize("powers", [False, True])
def test_factors_in_the_file_rebuild_the_graph(powers: bool) -> None:
    data, plan = {"x": images()}, replace(NOISE, powers_of_two=powers)
    first = qgraph.quantize(network(), data, plan=plan, effort="plain")
    text = first.exponents.dump()
    kept = parse_exponents(json.loads(text))
    assert kept.dump() == text and kept.factors.keys() == {"first", "depthwise"}
    assert any(any(steps) for steps in kept.factors.values())
    without = with_exponents(network(), INT8, plan, USUAL, kept)
    assert print_graph(without) == print_graph(first.graph)
    other = {"x": images(seed=7) * 3}  # other samples change nothing
    again = qgraph.quantize(network(), other, exponents=kept)
    assert print_graph(again.graph) == print_graph(first.graph)
    assert again.exponents == first.exponents
    fresh = qgraph.quantize(network(), other, plan=plan, effort="plain")
    assert fresh.exponents.factors != kept.factors


def test_without_data_batch_norms_give_the_factors() -> None:
    made = qgraph.quantize(network(), None, plan=NOISE, effort="plain")
    graph = prepared(network())
    assert made.exponents.factors == channel_factors(graph, None, layer_steps(made.graph)) != {}
    again = qgraph.quantize(network(), None, exponents=made.exponents)
    assert print_graph(again.graph) == print_graph(made.graph)


def test_factors_of_the_file_that_are_wrong_are_named() -> None:
    with pytest.raises(CalibrationError, match="list of whole numbers") as error:
        parse_exponents({"format": 1, "tensors": {}, "factors": {"first": [0.5]}})
    assert error.value.node == "first"
    with pytest.raises(CalibrationError, match="must be mappings"):
        parse_exponents({"format": 1, "tensors": {}, "factors": []})


# -- plans that share them -----------------------------------------------------------------------


def test_samples_are_measured_once_for_each_set(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[object] = []

    def watched(graph: Graph, data: object, *others: object) -> object:
        measured.append(data)
        return channel_factors(graph, data, *others)

    monkeypatch.setattr("qgraph.static.preparations.channel_factors", watched)
    shared, one, other = Preparations(network()), {"x": images()}, {"x": images(seed=7)}
    texts = {}
    for data in (one, other, one):
        for plan in (NOISE, replace(NOISE, absorb=True), replace(NOISE, method="max")):
            floating, _ = shared.prepared(INT8, plan, data, Trace())
            _, graph = build(network(), INT8, plan, data, Trace())
            assert floating.factors == graph.factors
            texts.setdefault((id(data), plan), print_graph(floating))
    assert len(measured) == 2 + 9  # nine builds without shared preparations
    assert texts[id(one), NOISE] != texts[id(other), NOISE]
    shared.forget_all_but([NOISE])
    shared.prepared(INT8, NOISE, one, Trace())
    assert len(measured) == 11


def test_a_pass_list_is_measured_too() -> None:
    listed = pipeline_of("float,equalize-channels{biases=false,noise=true}", "", INT8)
    data = {"x": images()}
    _, found = Preparations(network(), listed).prepared(INT8, Plan(), data, Trace())
    _, wanted = Preparations(network()).prepared(INT8, Plan(equalize="noise"), data, Trace())
    assert print_graph(found) == print_graph(wanted) and found.factors == wanted.factors != {}


@pytest.mark.parametrize("factor", [193, -193, 10**400], ids=["high", "low", "huge"])
def test_a_factor_out_of_range_is_named(factor: int) -> None:
    graph = prepared(network())
    with pytest.raises(PassError, match="outside 2\\^-12 to 2\\^12"):
        PassManager((EqualizeChannels(noise=True, factors={"first": (factor,) * 6}),)).run(graph)


@pytest.mark.filterwarnings("error")
def test_a_layer_that_is_clipped_everywhere_makes_no_noise() -> None:
    graph = prepared(network())
    channels = channel_map(graph)
    seen = activated_channels(graph, channels.layers, {"x": images()})
    dead = {
        layer.name: replace(seen[layer.name], unclipped=0 * seen[layer.name].unclipped)
        for layer in channels.layers
    }
    assert not noise_factors(graph, channels, dead).any()
    one = {**seen, "first": dead["first"]}
    assert np.isfinite(noise_factors(graph, channels, one)).all()
    assert noise_factors(graph, channels, one).any()


def test_variances_are_computed_in_float64() -> None:
    g = Graph("net")
    g.outputs["y"] = g.add(
        "matmul", g.input("x", "float32", (None, 1)), g.const(np.ones((1, 1), np.float32), "w")
    )
    layer = g.producer(g.outputs["y"])
    large = 2.0**127
    for x, variance in (([2.0**24, 2.0**24 + 2], 1.0), ([large] * 3 + [-large], 0.75 * large**2)):
        data = {"x": np.array(x, np.float32)[:, None]}
        found = activated_channels(g, [layer], data)[layer.name].variance
        # The deviation is stored: its root and its square each round once.
        np.testing.assert_array_max_ulp(found, np.array([variance]), 2)
