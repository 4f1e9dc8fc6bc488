"""Sums over any axes between layers become products with constant rows."""

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.transforms.sums_to_products import SumsToProducts
from tests.helpers.evaluate import reasons, run_pass
from tests.helpers.layers import WINDOW


def net(op="sum", axes=(-1,), keepdims=True, shape=(None, 4, 3, 5), behind="conv2d") -> Graph:
    g = Graph("net")
    x = g.input("x", "float64", shape)
    y = g.add(op, x, name="s", attrs={"axes": axes, "keepdims": keepdims})
    if behind == "conv2d":
        w = g.const(np.ones((1, 1, g.types[y].shape[-1], 2)), "w")
        y = g.add("conv2d", y, w, attrs=WINDOW)
    elif behind:
        y = g.add(behind, y)
    g.outputs["y"] = y
    return g


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("axes", [(-1,), (1,), (1, 2), (3, 1), (1, 2, 3)], ids=str)
def test_the_function_stays(op, axes):
    g = net(op, axes)
    run_pass(SumsToProducts(), g)
    found = {n.op for n in g.topological()}
    assert "batch_matmul" in found and op not in found


@pytest.mark.parametrize("axes", [(-1,), (1,), (1, 3)], ids=str)
def test_axes_that_are_dropped(axes):
    g = net("sum", axes, keepdims=False, behind="tanh")
    before = g.types["s"]
    run_pass(SumsToProducts(), g)
    assert g.types["s"] == before and g.nodes["s"].op == "reshape"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"axes": (0, 1), "behind": "tanh"}, "with the batch"),
        ({"shape": (None, None, 3, 5)}, "--input-shape"),
        ({"behind": "exp"}, "float arithmetic or an output"),
        ({"behind": ""}, "float arithmetic or an output"),
    ],
)
def test_refusals(options, words):
    g = net(**options)
    ((node, reason),) = reasons(run_pass(SumsToProducts(), g))
    assert node == "s" and words in reason
