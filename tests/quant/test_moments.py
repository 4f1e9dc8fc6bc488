"""Closed forms of clipped normal variables against samples, and means through a graph."""

from __future__ import annotations

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Moments
from qgraph.quant.moments import before_relu, clipped, expected_means

RNG = np.random.default_rng(0)
MEAN = np.array([-3.0, -0.5, 0, 0.7, 4, 2, 5.5, 20])
DEVIATION = np.array([1.0, 2, 1, 0.2, 1, 5, 1, 3])
SAMPLES = 400_000


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, np.inf), (0.0, 6.0), (0.0, np.array([1.0, 2, 0.5, 0.7, 6, 3, 0.1, 25])), (-1.0, 1.0)],
)
def test_clipped_normal_variables(low, high) -> None:
    x = np.clip(RNG.normal(MEAN, DEVIATION, (SAMPLES, MEAN.size)), low, high)
    found = clipped(Moments(MEAN, DEVIATION), low, high)
    error = 6 * DEVIATION / np.sqrt(SAMPLES)  # six deviations of a mean of samples
    assert (np.abs(found.mean - x.mean(axis=0)) < error).all()
    assert (np.abs(found.deviation - x.std(axis=0)) < error).all()


def test_no_deviation_is_a_clip() -> None:
    found = clipped(Moments(np.array([-2.0, 3, 9]), np.zeros(3)), 0, 6)
    assert found.mean.tolist() == [0, 3, 6] and found.deviation.tolist() == [0, 0, 0]


def test_before_relu_undoes_relu() -> None:
    wanted = Moments(np.array([-2.0, -1, 0, 1, 3, 12, 100]), np.array([1.0, 0.5, 2, 1, 1, 1.5, 1]))
    found = before_relu(clipped(wanted))
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.deviation, wanted.deviation, rtol=1e-6)


def test_before_relu_of_constants() -> None:
    found = before_relu(Moments(np.array([0.0, 2]), np.zeros(2)))
    np.testing.assert_allclose(found.mean, [0, 2])
    assert found.deviation.tolist() == [0, 0]


def test_means_pass_through_a_graph() -> None:
    """By sampling: a normal value, ReLU6, a padded convolution, a sum, a mean over positions."""
    g = Graph("net")
    x = g.input("x", "float64", (None, 5, 5, 3))
    moments = Moments(np.array([-1.0, 2, 5]), np.array([1.0, 2, 3]))
    g.moments[x] = moments
    y = g.add("relu6", x)
    w, b = g.const(RNG.normal(size=(3, 3, 3, 3)), "w"), g.const(RNG.normal(size=3), "b")
    window = {"strides": (2, 2), "dilations": (1, 1), "padding": "same"}
    y = g.add("bias_add", g.add("conv2d", y, w, attrs=window), b)
    z = g.add("avg_pool", g.add("relu6", x), attrs={"ksize": (1, 1), "strides": (2, 2),
                                                    "padding": "valid"})  # fmt: skip
    g.outputs["y"] = g.add("mean", g.add("add", y, z), attrs={"axes": (1, 2), "keepdims": False})
    data = RNG.normal(moments.mean, moments.deviation, (20_000, 5, 5, 3))
    found = expected_means(g)
    for value in (y, z, g.outputs["y"]):
        sampled = evaluate(g, {"x": data}, [value])[value]
        sampled = sampled.mean(axis=tuple(range(sampled.ndim - 1)))
        np.testing.assert_allclose(found[value], sampled, atol=0.1)


def test_means_stop_at_what_is_not_linear() -> None:
    g = Graph("net")
    x = g.input("x", "float64", (None, 4, 4, 2))
    g.moments[x] = Moments(np.ones(2), np.ones(2))
    y = g.add("tanh", x)
    g.outputs["y"] = g.add("relu", g.add("neg", y))
    assert set(expected_means(g)) == {"x"}
