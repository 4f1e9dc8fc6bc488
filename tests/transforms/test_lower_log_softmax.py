"""Logarithms of softmaxes between layers are written in ops that have integers."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from qgraph import load
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT
from qgraph.transforms.lower_log_softmax import LowerLogSoftmax
from tests.helpers.evaluate import run_pass
from tests.helpers.layers import WINDOW

SHAPE = (None, 4, 3, 5)


def layer(g: Graph, x: str, name: str) -> str:
    w = g.const(np.random.default_rng(0).normal(size=(1, 1, g.types[x].shape[-1], 5)), "w")
    return g.add("conv2d", x, w, name=name, attrs=WINDOW)


def net(before: bool = True, behind: bool = True) -> Graph:
    g = Graph("net")
    x = g.input("x", "float64", SHAPE)
    y = g.add("log_softmax", layer(g, x, "first") if before else x, name="s", attrs={"axis": -1})
    g.outputs["y"] = layer(g, y, "second") if behind else y
    return g


def written_out(of_sum: tuple[int, ...], of_largest: tuple[int, ...]) -> Graph:
    """log(sum(exp(x - max(x)))), over any axes."""
    g = Graph("net")
    x = layer(g, g.input("x", "float64", SHAPE), "first")
    attrs = {"axes": of_largest, "keepdims": True}
    less = g.add("sub", x, g.add("reduce_max", x, attrs=attrs), name="less")
    attrs = {"axes": of_sum, "keepdims": True}
    y = g.add("log", g.add("sum", g.add("exp", less), attrs=attrs), name="s")
    g.outputs["y"] = layer(g, y, "second")
    return g


def ops(g: Graph) -> set[str]:
    return {n.op for n in g.topological()}


def test_the_function_stays() -> None:
    g = net()
    run_pass(LowerLogSoftmax(), g)
    assert "log_softmax" not in ops(g) and {"reduce_max", "relu", "log", "maximum"} <= ops(g)


@pytest.mark.parametrize(("before", "behind"), [(False, True), (True, False)])
def test_it_stays_at_the_ends_of_a_network(before: bool, behind: bool) -> None:
    g = net(before, behind)
    run_pass(LowerLogSoftmax(), g)
    assert "log_softmax" in ops(g)


@pytest.mark.parametrize("axes", [(-1,), (1, 2)])
def test_a_sum_that_is_at_least_1(axes: tuple[int, ...]) -> None:
    g = written_out(axes, tuple(a % 4 for a in axes))
    run_pass(LowerLogSoftmax(), g)
    assert g.producer(g.nodes["s"].inputs[0]).op == "maximum"


def test_sums_that_may_be_less_than_1_stay() -> None:
    """The sum does not contain the largest element of other axes."""
    g = written_out((3,), (1,))
    run_pass(LowerLogSoftmax(), g)
    assert "maximum" not in ops(g)


def test_a_largest_element_that_may_be_infinite_in_tensorflow() -> None:
    x = tf_keras.layers.Input((4,), name="x")
    y = tf.reduce_logsumexp(tf_keras.layers.Dense(3)(x), -1, keepdims=True)
    g = load(tf_keras.Model(x, tf_keras.layers.Dense(2)(y)))
    PassManager(FLOAT).run(g)
    assert {"select", "opaque", "log", "exp"}.isdisjoint(ops(g))
