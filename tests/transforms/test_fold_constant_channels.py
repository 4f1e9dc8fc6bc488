"""Near-constant batch-norm channels become constants, borders of padded convolutions included."""

from __future__ import annotations

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


def test_the_change_is_what_the_log_says() -> None:
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
