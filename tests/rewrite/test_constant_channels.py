"""Channels that are constant for every input."""

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.rewrite.constant_channels import constant_channels
from qgraph.transforms.prune_constant_channels import PruneConstantChannels
from tests.helpers.layers import WINDOW

# 1 - tanh(x) above 0, else 1: for NaN the comparison is false.
STEPS = (
    ("greater", (0, 0.0), ()),
    ("tanh", (0,), ()),
    ("mul", (2, -1.0), ()),
    ("add", (3, 1.0), ()),
    ("select", (1, 4, 1.0), ()),
)


def network() -> Graph:
    """The first of three channels is constant, and the second layer pads."""
    rng, g = np.random.default_rng(0), Graph("net")
    g.facts.add("batch-norm-folded")
    first = rng.normal(size=(1, 1, 2, 3)) * (0, 1, 1)
    y = g.add("conv2d", g.input("x", "float64", (None, 4, 4, 2)), g.const(first, "w"), attrs=WINDOW)
    y = g.add("bias_add", y, g.const(np.array([-1.0, 0, 0]), "b"))
    y = g.add("composed", y, name="act", attrs={"steps": STEPS})
    second = g.const(rng.normal(size=(3, 3, 3, 2)), "w2")
    g.outputs["y"] = g.add("conv2d", y, second, attrs=WINDOW)
    return g


def test_a_comparison_does_not_make_a_channel_constant() -> None:
    assert np.array_equal(constant_channels(network())["act"], [1, np.nan, np.nan], equal_nan=True)


def test_pruning_keeps_a_function_with_a_comparison() -> None:
    graph, x = network(), np.random.default_rng(1).normal(size=(2, 4, 4, 2))
    (wanted,) = evaluate(graph, {"x": x}, graph.outputs.values()).values()
    PassManager((PruneConstantChannels(),)).run(graph)
    (found,) = evaluate(graph, {"x": x}, graph.outputs.values()).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", ["mean", "reduce_max"])
def test_channels_of_a_value_of_unknown_rank_are_unknown(op) -> None:
    graph = Graph("net")
    x = graph.input("x", "float32", None)
    graph.outputs["y"] = graph.add(op, x, name="y", attrs={"axes": (1,), "keepdims": False})
    graph.facts.add("batch-norm-folded")
    assert constant_channels(graph)["y"].size == 0
    PassManager((PruneConstantChannels(),)).run(graph)
