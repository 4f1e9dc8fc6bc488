"""Equalisation keeps the function and brings the ranges of channels together."""

from __future__ import annotations

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.ir.types import Moments
from qgraph.passes import PassManager
from qgraph.quant.noise_balance import LayerNoise, LayerSteps
from qgraph.recipes import FLOAT
from qgraph.transforms.equalize_channels import EqualizeChannels
from tests.helpers.generators.graphs import random_graph
from tests.helpers.layers import WINDOW

RNG = np.random.default_rng(0)
CHANNELS = np.array([1e-3, 0.1, 1, 30])


def conv(g: Graph, x: str, inputs: int, outputs: int, scale: object = 1.0) -> str:
    w = g.const(RNG.uniform(-1, 1, (3, 3, inputs, outputs)) * scale, "w")
    y = g.add("conv2d", x, w, attrs=WINDOW)
    return g.add("bias_add", y, g.const(RNG.normal(size=outputs) * scale, "b"))


def outputs(graph: Graph) -> dict[str, np.ndarray]:
    shapes = {n: [d or 2 for d in graph.types[n].shape] for n in graph.inputs}
    return evaluate(graph, {n: np.random.default_rng(1).normal(size=s) for n, s in shapes.items()})


def equalized(graph: Graph, **options: bool) -> Graph:
    graph = graph.copy()
    graph.facts.add("batch-norm-folded")
    PassManager((EqualizeChannels(**options),)).run(graph)
    return graph


def spread(weights: np.ndarray) -> float:
    peaks = np.abs(weights).max(axis=(0, 1, 2))
    return float(peaks.max() / peaks.min())


@pytest.mark.parametrize("between", ["relu", "relu6", "identity", "leaky", "add", "concat", "pool"])
def test_ranges_meet_and_the_function_stays(between: str) -> None:
    g = Graph("net")
    x = g.input("x", "float64", (None, 6, 6, 3))
    y = conv(g, x, 3, 4, CHANNELS)
    if between == "leaky":
        y = g.add("maximum", y, g.add("mul", y, g.const(np.float64(0.1), "slope")))
    elif between == "add":
        y = g.add("relu", g.add("add", y, conv(g, x, 3, 4, CHANNELS)))
    elif between == "concat":
        y = g.add("concat", y, conv(g, x, 3, 4), attrs={"axis": 3})
    elif between == "pool":
        pool = {"ksize": (2, 2), "strides": (2, 2), "padding": "valid"}
        y = g.add("max_pool", y, attrs=pool)
    else:
        y = g.add(between, y)
    g.outputs["y"] = conv(g, y, g.types[y].shape[-1], 5)
    after = equalized(g)
    np.testing.assert_allclose(outputs(after)["y"], outputs(g)["y"], rtol=1e-12, atol=1e-12)
    first = next(n for n in after.topological() if n.op == "conv2d")
    assert spread(after.constant(first.inputs[1])) < spread(g.constant("w")) / 20


def test_powers_of_two_are_exact() -> None:
    g = Graph("net")
    y = g.add("relu", conv(g, g.input("x", "float64", (None, 4, 4, 3)), 3, 4, CHANNELS))
    g.outputs["y"] = conv(g, y, 4, 2)
    after = equalized(g, powers_of_two=True)
    assert print_graph(after) != print_graph(g)
    assert np.array_equal(outputs(after)["y"], outputs(g)["y"])


def test_a_channel_that_others_read_stays() -> None:
    g = Graph("net")
    y = g.add("relu", conv(g, g.input("x", "float64", (None, 4, 4, 3)), 3, 4, CHANNELS))
    g.outputs["y"], g.outputs["seen"] = conv(g, y, 4, 2), y
    assert print_graph(equalized(g)) == print_graph(g)


def test_a_large_bias_counts_unless_told_otherwise() -> None:
    g = Graph("net")
    w = np.ones((1, 1, 2, 2)) * [1, 1e-4]
    x = g.add("conv2d", g.input("x", "float64", (None, 2, 2, 2)), g.const(w, "w"), attrs=WINDOW)
    y = g.add("relu", g.add("bias_add", x, g.const(np.array([0.0, 1]), "b")))
    g.outputs["y"] = g.add("conv2d", y, g.const(np.ones((1, 1, 2, 2)), "v"), attrs=WINDOW)
    peak = {
        biases: np.abs(
            evaluate(graph, {"x": np.zeros((1, 2, 2, 2))}, [graph_bias(graph)])[graph_bias(graph)]
        ).max()
        for biases in (True, False)
        for graph in [equalized(g, biases=biases)]
    }
    assert peak[True] == pytest.approx(1, rel=0.01) and peak[False] > 10


def graph_bias(graph: Graph) -> str:
    return next(n.name for n in graph.topological() if n.op == "bias_add")


@pytest.mark.parametrize("seed", range(40))
def test_random_networks_keep_their_function(seed: int) -> None:
    graph = random_graph(seed)
    PassManager(FLOAT).run(graph)
    before = outputs(graph)
    after = outputs(equalized(graph, powers_of_two=seed % 2 == 0))
    for name, expected in before.items():
        scale = np.abs(expected).max()
        np.testing.assert_allclose(after[name], expected, rtol=1e-12, atol=1e-12 * scale)


def test_layers_of_zeros_and_of_one_channel() -> None:
    g = Graph("net")
    y = g.add("relu", conv(g, g.input("x", "float64", (None, 4, 4, 3)), 3, 1, 0.0))
    g.outputs["y"] = conv(g, y, 1, 2)
    after = equalized(g)
    assert np.isfinite(after.constant(next(iter(after.nodes["conv2d"].inputs[1:])))).all()
    np.testing.assert_allclose(outputs(after)["y"], outputs(g)["y"], rtol=1e-12)


def small_channel(known: bool = True) -> Graph:
    """Two channels: the first has a small deviation, and large weights behind it."""
    g = Graph("small")
    x = g.input("x", "float64", (None, 4))
    first = g.add("matmul", x, g.const(RNG.normal(size=(4, 2)) * [0.02, 0.5], "w"))
    y = g.add("bias_add", first, g.const(np.float64([0.4, 0.5]), "b"))
    y = g.add("relu", y, name="positive")
    second = g.add("matmul", y, g.const(np.float64([[16, -8, 4], [0.25, 0.5, -0.25]]), "v"))
    end = g.add("bias_add", second, g.const(np.zeros(3), "c"))
    g.outputs["y"] = end
    if known:
        g.moments[g.producer("positive").inputs[0]] = Moments(
            np.float64([0.4, 0.5]), np.float64([0.05, 1.0])
        )
        g.moments[end] = Moments(np.zeros(3), np.full(3, 0.8))
    return g


def test_by_noise_a_channel_with_large_weights_behind_it_gets_more_codes() -> None:
    g = small_channel()
    made = equalized(g, noise=True)
    before, after = (graph.constant(graph.nodes["matmul"].inputs[1]) for graph in (g, made))
    grown = np.abs(after / before).max(axis=0)
    assert grown[0] > 2 * grown[1]
    np.testing.assert_allclose(outputs(made)["y"], outputs(g)["y"], rtol=1e-12)


def test_by_noise_nothing_changes_without_batch_norms() -> None:
    g = small_channel(known=False)
    assert print_graph(equalized(g, noise=True)) == print_graph(g)


@pytest.mark.parametrize("pairs", [True, False])
def test_slopes_of_the_noise_are_those_of_small_differences(pairs: bool) -> None:
    rng = np.random.default_rng(0)
    shape = (5,) if pairs else (5, 7)
    layer = LayerNoise(
        LayerSteps(input=2.0**-7, weights=2.0**-3),
        np.arange(5), np.arange(5, 10 if pairs else 12), True,
        *(rng.uniform(0.1, 2, s) for s in (5, 5, shape, 5, shape[-1], (9, *shape))),
    )  # fmt: skip
    log2, slope, step = rng.normal(size=12), np.zeros(12), 1e-5
    for ids, change in layer.noise(log2).slopes:
        np.add.at(slope, ids, change)
    for i, found in enumerate(slope):
        ends = [layer.noise(log2 + s * step * (np.arange(12) == i)).total for s in (1, -1)]
        difference = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(found * np.log(2), difference, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("noise", [True, False])
def test_the_number_of_threads_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, noise: bool
) -> None:
    g, texts = small_channel(), []
    for cpus in ({0}, {0, 1}):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, cpus=cpus: cpus)
        texts.append(print_graph(equalized(g, noise=noise)))
    assert texts[0] == texts[1] != print_graph(g)
