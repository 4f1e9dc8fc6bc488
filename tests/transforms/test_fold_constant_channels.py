"""Near-constant batch-norm channels become constants, borders of padded convolutions included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT
from qgraph.rewrite.trace import Trace
from qgraph.transforms.fold_constant_channels import FoldConstantChannels

RNG = np.random.default_rng(0)
WINDOW = {"strides": (1, 1), "dilations": (1, 1)}


def network(variance: np.ndarray, padding: str = "same") -> Graph:
    """relu -> batch norm -> conv, as networks with the norm behind the activation have it."""
    g = Graph("net")
    x = g.add("relu", g.input("x", "float64", (None, 5, 5, 4)))
    vectors = [np.array([1.0, 2, 3, 4]), np.arange(4.0), np.array([0.0, 1, 2, 3]), variance]
    statistics = [g.const(v, name) for v, name in zip(vectors, "gbmv", strict=True)]
    y = g.add("batch_norm", x, *statistics, attrs={"epsilon": 1e-3}, name="bn")
    w = g.const(RNG.normal(size=(3, 3, 4, 2)), "w")
    g.outputs["y"] = g.add("conv2d", y, w, attrs={**WINDOW, "padding": padding})
    return g


def folded(graph: Graph, ratio: float = 0.03) -> tuple[Graph, Trace]:
    graph, trace = graph.copy(), Trace()
    PassManager((FoldConstantChannels(ratio), *FLOAT)).run(graph, trace)
    return graph, trace


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_a_dead_channel_is_exactly_its_constant(padding: str) -> None:
    graph = network(np.array([0.0, 1, 1, 1]), padding)
    x = np.abs(RNG.normal(size=(2, 5, 5, 4)))
    x[..., 0] = 0  # dead, as its mean and variance say
    after, trace = folded(graph)
    rewrite = next(r for r in trace.rewrites if r.pass_name == "fold-constant-channels")
    assert "gamma 0 for 1 of 4 channels" in rewrite.after
    expected = evaluate(graph, {"x": x})["y"]
    np.testing.assert_allclose(evaluate(after, {"x": x})["y"], expected, rtol=1e-12, atol=1e-12)
    # ... and whatever comes along in that channel no longer counts.
    x[..., 0] = 7
    np.testing.assert_allclose(evaluate(after, {"x": x})["y"], expected, rtol=1e-12, atol=1e-12)


def test_the_change_is_the_one_in_the_log() -> None:
    graph = network(np.array([1e-7, 1, 1, 1]), "valid")
    after, trace = folded(graph)
    said = float(trace.rewrites[0].after.rpartition(" ")[2])
    assert said == pytest.approx(np.sqrt(1e-7 / (1e-7 + 1e-3)), rel=1e-2)
    x = RNG.uniform(1, 2, (1, 5, 5, 4))
    x[..., 0] = np.sqrt(1e-7)  # one standard deviation off the mean
    moved = np.abs(evaluate(after, {"x": x})["y"] - evaluate(graph, {"x": x})["y"]).max()
    filters = np.abs(graph.constant("w")[:, :, 0]).sum(axis=(0, 1)).max()
    assert 0 < moved <= 1.01 * said * filters


def test_lively_channels_stay() -> None:
    graph = network(np.array([0.5, 1, 1, 1]))
    _, trace = folded(graph)
    assert not [r for r in trace.rewrites if r.pass_name == "fold-constant-channels"]


def test_shared_statistics_are_not_changed_for_others() -> None:
    graph = network(np.array([0.0, 1, 1, 1]))
    graph.outputs["gamma"] = "g"
    FoldConstantChannels().run(graph)
    assert graph.constant("g").tolist() == [1, 2, 3, 4]


def held(
    act: str, beta: np.ndarray, gamma: np.ndarray | None = None, more: str = ""
) -> tuple[Graph, list[str]]:
    """x -> batch norm -> act, all of variance 1; what the pass makes of it, and what it logs."""
    g = Graph("net")
    count = len(beta)
    x = g.input("x", "float64", (None, count))
    ones, zeros = np.ones(count), np.zeros(count)
    gamma = ones if gamma is None else gamma
    statistics = [g.const(v, "s") for v in (gamma, beta, zeros, ones)]
    y = g.add("batch_norm", x, *statistics, attrs={"epsilon": 0.0}, name="bn")
    g.outputs["y"] = g.add(act, y)
    if more:
        g.outputs["more"] = y if more == "output" else g.add(more, y)
    trace = Trace()
    PassManager((FoldConstantChannels(),)).run(g, trace)
    return g, [r.after for r in trace.rewrites]


def test_channels_that_an_activation_holds_at_its_end() -> None:
    beta = np.array([-5.9, -6.1, 0, 11.9, 12.1])
    why = ", of 5 channels: all values within 6 standard deviations are clipped"
    graph, log = held("relu6", beta)
    assert log == [f"gamma 0 for 1 that relu clips to 0 and 1 that relu6 clips to 6{why}"]
    x = np.linspace(-5, 5, 11)[:, None] * np.ones(5)
    found = evaluate(graph, {"x": x})["y"]
    np.testing.assert_array_equal(found, np.clip(x + beta, 0, 6))
    found = evaluate(graph, {"x": np.full((1, 5), 100.0)})["y"]
    assert found.tolist() == [[6, 0, 6, 6, 6]]
    assert held("relu", beta)[1] == [f"gamma 0 for 1 that relu clips to 0{why}"]
    assert held("tanh", beta)[1] == []
    assert held("relu", np.array([-3.0, 3.0]), np.array([-0.4, 0.4]))[1][0].startswith(
        "gamma 0 for 1 that relu clips to 0"
    )


def test_a_channel_that_others_read_is_not_held() -> None:
    beta, full = np.array([-9.0, 1.0]), np.array([13.0, 1.0])
    assert held("relu", beta)[1] and held("relu", beta, more="relu6")[1]
    assert not held("relu", beta, more="tanh")[1] and not held("relu", beta, more="output")[1]
    assert held("relu6", full)[1] and not held("relu6", full, more="relu")[1]


def test_the_scale_that_was_replaced_is_gone() -> None:
    graph = network(np.array([0.0, 1, 1, 1]))
    FoldConstantChannels(0.03).run(graph)
    assert "g" not in graph.nodes
    assert graph.constant(graph.nodes["bn"].inputs[1]).tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize("fed", [1, 2, 4], ids=["gamma", "beta", "variance"])
def test_channels_of_unknown_statistics_are_left_alone(fed: int) -> None:
    graph = network(np.array([0.0, 1, 1, 1]))
    inputs = list(graph.nodes["bn"].inputs)
    inputs[fed] = graph.input("fed", "float64", (4,))
    graph.replace(replace(graph.nodes["bn"], inputs=tuple(inputs)))
    trace = Trace()
    FoldConstantChannels(0.03).run(graph, trace)
    assert graph.nodes["bn"].inputs == tuple(inputs) and not trace.rewrites
