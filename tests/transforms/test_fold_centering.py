"""A layer whose mean over channels is taken away loses it in its weights."""

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.transforms.fold_centering import FoldCentering
from tests.helpers.evaluate import reasons, run_pass
from tests.helpers.layers import WINDOW

RNG = np.random.default_rng(0)


def head(op: str = "matmul", bias: bool = True, axes: tuple[int, ...] = (-1,)) -> tuple[Graph, str]:
    """`layer - mean(layer)`, and the name of what the mean is taken of."""
    g = Graph("net")
    if op == "matmul":
        y = g.add(op, g.input("x", "float64", (3, 5)), g.const(RNG.normal(size=(5, 4)), "w"))
    else:
        attrs = WINDOW
        shape = (3, 3, 4, 1) if op == "depthwise_conv2d" else (3, 3, 4, 4)
        x = g.input("x", "float64", (2, 5, 5, 4))
        y = g.add(op, x, g.const(RNG.normal(size=shape), "w"), name="layer", attrs=attrs)
    if bias:
        y = g.add("bias_add", y, g.const(RNG.normal(size=4), "b"), name="biased")
    mean = g.add("mean", y, name="mean", attrs={"axes": axes, "keepdims": True})
    g.outputs["y"] = g.add("sub", y, mean, name="centered")
    return g, y


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("op", ["matmul", "conv2d"])
def test_the_mean_goes_and_the_function_stays(op, bias):
    g, _ = head(op, bias)
    trace = run_pass(FoldCentering(), g)
    assert [n.op for n in g.topological() if n.op in ("mean", "sub")] == []
    assert [r.after for r in trace.rewrites][-1:] == ["its outputs add up to zero"]


def test_golden():
    g, _ = head()
    run_pass(FoldCentering(), g)
    text = [line.strip() for line in print_graph(g).splitlines() if "const" not in line]
    assert text[2:4] == [
        "%matmul = matmul(%x, %w/centered) : float64[3,4]",
        "%biased = bias_add(%matmul, %b/centered) : float64[3,4]",
    ]


@pytest.mark.parametrize("other", ["depthwise", "axis"])
def test_what_is_no_centering(other):
    g, _ = head("depthwise_conv2d") if other == "depthwise" else head("conv2d", axes=(1,))
    before = list(g.topological())
    run_pass(FoldCentering(), g)
    assert list(g.topological()) == before


def test_refused_for_groups_whose_weights_lie_beside_each_other():
    g = Graph("net")
    attrs = WINDOW
    x = g.input("x", "float64", (2, 5, 5, 4))
    y = g.add("conv2d", x, g.const(RNG.normal(size=(3, 3, 2, 6)), "w"), name="layer", attrs=attrs)
    mean = g.add("mean", y, attrs={"axes": (-1,), "keepdims": True})
    g.outputs["y"] = g.add("sub", y, mean, name="centered")
    assert reasons(run_pass(FoldCentering(), g)) == [
        ("centered", "channels of `layer` have their own inputs")
    ]


def test_refused_where_the_mean_or_the_layer_is_used_elsewhere():
    g, y = head()
    g.outputs["z"] = y
    assert reasons(run_pass(FoldCentering(), g)) == [
        ("centered", "`biased` is also used by output `z`")
    ]
    g, y = head()
    g.outputs["z"] = "mean"
    assert reasons(run_pass(FoldCentering(), g)) == [("centered", "`mean` is used elsewhere too")]


SUMS = {
    "V + A - mean": lambda g, v, a, m: g.add("sub", g.add("add", v, a), m),
    "A + V - mean": lambda g, v, a, m: g.add("sub", g.add("add", a, v), m),
    "V - mean + A": lambda g, v, a, m: g.add("add", g.add("sub", v, m), a),
    "A + (V - mean)": lambda g, v, a, m: g.add("add", a, g.add("sub", v, m)),
    "V + (A - mean)": lambda g, v, a, m: g.add("add", v, g.add("sub", a, m)),
    "V - (mean - A)": lambda g, v, a, m: g.add("sub", v, g.add("sub", m, a)),
    "A - (mean - V)": lambda g, v, a, m: g.add("sub", a, g.add("sub", m, v)),
    "V + V + A - mean": lambda g, v, a, m: g.add("sub", g.add("add", g.add("add", v, v), a), m),
}


@pytest.mark.parametrize("order", SUMS)
def test_every_order_of_a_dueling_head_loses_its_mean(order):
    g = Graph("net")
    x = g.input("x", "float64", (3, 5))
    a = g.add("matmul", x, g.const(RNG.normal(size=(5, 4)), "wa"))
    a = g.add("bias_add", a, g.const(RNG.normal(size=4), "ba"))
    v = g.add("matmul", x, g.const(RNG.normal(size=(5, 1)), "wv"))
    mean = g.add("mean", a, attrs={"axes": (-1,), "keepdims": True})
    g.outputs["y"] = SUMS[order](g, v, a, mean)
    run_pass(FoldCentering(), g)
    assert not [n.name for n in g.topological() if n.op == "mean"]


def test_a_mean_of_something_else_stays():
    g = Graph("net")
    x = g.input("x", "float64", (3, 4))
    other = g.add("tanh", x)
    mean = g.add("mean", other, attrs={"axes": (-1,), "keepdims": True})
    g.outputs["y"] = g.add("sub", g.add("add", x, x), mean)
    before = list(g.topological())
    run_pass(FoldCentering(), g)
    assert list(g.topological()) == before


def test_a_mean_that_is_not_taken_of_a_term_is_passed_over():
    """The first mean belongs to nothing in the sum; the second one does."""
    g, y = head()
    other = g.add("mean", g.input("z", "float64", (3, 4)), attrs={"axes": (-1,), "keepdims": True})
    value = g.input("v", "float64", (3, 1))
    without = g.add("sub", value, other, name="without")
    g.outputs["y"] = g.add("sub", g.add("add", without, y, name="sum"), "mean", name="q")
    g.remove("centered")
    run_pass(FoldCentering(), g)
    left = [node.name for node in g.topological() if node.op == "mean"]
    assert left == [other]
