"""Padding with numbers that are not 0."""

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.transforms.lower_paddings import LowerPaddings
from tests.helpers.evaluate import reasons, run_pass

PADDINGS = ((0, 0), (1, 2), (0, 1), (0, 0))


def net(value=1.5, paddings=PADDINGS, shape=(None, 5, 4, 3), start="relu", pool=None) -> Graph:
    g = Graph("net")
    x = g.add(start, g.input("x", "float64", shape))
    y = g.add("pad", x, name="p", attrs={"paddings": paddings, "value": value})
    if pool:
        attrs = {"ksize": pool, "strides": (2, 1), "padding": "valid"}
        y = g.add("max_pool", y, name="m", attrs=attrs)
    g.outputs["y"] = y
    return g


@pytest.mark.parametrize("paddings", [PADDINGS, ((0, 0), (0, 0), (0, 0), (2, 1))], ids=str)
@pytest.mark.parametrize("value", [1.5, -2])
def test_a_number_becomes_a_sum(value, paddings):
    g = net(value, paddings)
    run_pass(LowerPaddings(), g)
    (constant,) = [g.constant(v) for v in g.nodes["p"].inputs if g.constant(v) is not None]
    assert g.nodes["p"].op == "add" and {*np.unique(constant)} == {0, value}
    assert g.nodes["p/zeros"].attrs.get("value", 0) == 0


@pytest.mark.parametrize("value", [-np.inf, -3e38, -1.0])
def test_padding_of_a_pool_is_its_own(value):
    g = net(value, pool=(3, 2))
    run_pass(LowerPaddings(), g)
    assert [n.op for n in g.topological()] == ["input", "relu", "max_pool"]
    assert g.nodes["m"].attrs["padding"] == ((1, 2), (0, 1))


def test_padding_that_may_be_the_largest_stays_before_a_pool():
    for options in ({"value": -1.0, "start": "tanh"}, {"value": 1.0}):
        g = net(pool=(3, 2), **options)
        run_pass(LowerPaddings(), g)
        assert g.nodes["p"].op == "add"


def test_wide_padding_stays_before_a_pool():
    g = net(-1.0, pool=(2, 2))
    run_pass(LowerPaddings(), g)
    assert g.nodes["p"].op == "add"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"value": 1e31}, "it pads with 1e+31"),
        ({"paddings": ((1, 0), *PADDINGS[1:])}, "pads the batch"),
        ({"shape": (None, None, 4, 3)}, "--input-shape"),
    ],
)
def test_refusals(options, words):
    g = net(**options)
    ((node, reason),) = reasons(run_pass(LowerPaddings(), g))
    assert node == "p" and words in reason


def test_zeros_stay():
    g = net(0)
    run_pass(LowerPaddings(), g)
    assert [n.op for n in g.topological()] == ["input", "relu", "pad"]
