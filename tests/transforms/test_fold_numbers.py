"""One number, such as the scale of attention's scores, goes into a layer further up."""

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.transforms.fold_batch_norm import FoldBatchNorm
from tests.helpers.evaluate import run_pass
from tests.helpers.graphs import ops
from tests.transforms.test_fold_batch_norm import CIN, layer, start

RNG = np.random.default_rng(0)


def heads(g: Graph, x: str, name: str, perm=(0, 2, 1), bias=True) -> str:
    """A dense layer on rows, turned for a product of matrices."""
    y = g.add("matmul", x, g.const(RNG.normal(size=(CIN, 6)), f"{name}/w"), name=name)
    if bias:
        y = g.add("bias_add", y, g.const(RNG.normal(size=6), f"{name}/b"), name=f"{name}/bias")
    y = g.add("reshape", y, name=f"{name}/rows", attrs={"shape": (-1, 2, 6)})
    return g.add("transpose", y, name=f"{name}/turned", attrs={"perm": perm})


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("after", ["layer", "product"])
def test_scale_of_scores(after, first, bias):
    g, x = start("matmul")
    query = heads(g, x, "q", bias=bias)
    half = g.const(np.float64(0.3), "scale")
    if after == "layer":
        query = g.add("mul", *((half, query) if first else (query, half)), name="scaled")
    scores = g.add("batch_matmul", query, heads(g, x, "k", (0, 1, 2)), name="scores")
    if after == "product":
        scores = g.add("mul", *((half, scores) if first else (scores, half)), name="scaled")
    g.outputs["y"] = g.add("softmax", scores, name="shares", attrs={"axis": -1})
    run_pass(FoldBatchNorm(), g)
    assert "mul" not in ops(g)
    assert {"q", "k", "scores"} <= g.nodes.keys()


@pytest.mark.parametrize("inner", ["k", "k/bias", "k/rows", "k/turned"])
def test_values_with_other_users_are_not_scaled(inner):
    """The other operand of the product takes the number instead."""
    g, x = start("matmul")
    product = g.add("batch_matmul", heads(g, x, "k"), heads(g, x, "q", (0, 1, 2)), name="scores")
    g.outputs["y"] = g.add("mul", product, g.const(np.float64(0.3), "scale"), name="scaled")
    g.outputs["z"] = inner
    before = g.nodes["k"].inputs
    run_pass(FoldBatchNorm(), g)
    assert "mul" not in ops(g)
    assert g.nodes["k"].inputs == before


@pytest.mark.parametrize("bias", [False, True])
def test_scales_of_one_layer_for_queries_and_keys(bias):
    """PyTorch computes queries, keys and values by one layer, and slices its result."""
    g, x = start("matmul")
    y = g.add("matmul", x, g.const(RNG.normal(size=(CIN, 9))), name="qkv")
    if bias:
        y = g.add("bias_add", y, g.const(RNG.normal(size=9)))
    y = g.add("reshape", y, attrs={"shape": (-1, 2, 3, 3)})
    y = g.add("transpose", y, attrs={"perm": (2, 0, 1, 3)})
    parts = [
        g.add("squeeze", g.add("slice", y, attrs={
            "begin": (i, None, None, None), "end": (i + 1, None, None, None), "strides": (1,) * 4,
        }), attrs={"axes": (0,)})
        for i in range(3)
    ]  # fmt: skip
    numbers = [g.const(np.float64(v)) for v in (0.3, -2.5)]
    q = g.add("mul", parts[0], numbers[0])
    k = g.add("transpose", g.add("mul", parts[1], numbers[1]), attrs={"perm": (0, 2, 1)})
    g.outputs["y"] = g.add("batch_matmul", g.add("batch_matmul", q, k), parts[2])
    run_pass(FoldBatchNorm(), g)
    assert "mul" not in ops(g)


@pytest.mark.parametrize("second", ["same", "turned", "slice"])
def test_products_of_a_value_with_itself_are_not_scaled(second):
    g, x = start("matmul")
    a = g.add("reshape", layer(g, x, "matmul"), attrs={"shape": (-1, 2, 3)})
    if second == "same":
        b = a = g.add("slice", a, attrs={
            "begin": (None,) * 3, "end": (None, None, 2), "strides": (1,) * 3})  # fmt: skip
    elif second == "turned":
        b = g.add("transpose", a, attrs={"perm": (0, 2, 1)})
    else:
        b = g.add("slice", a, attrs={
            "begin": (None,) * 3, "end": (None, 1, None), "strides": (1,) * 3})  # fmt: skip
        b = g.add("transpose", b, attrs={"perm": (0, 2, 1)})
    product = g.add("batch_matmul", a, b)
    g.outputs["y"] = g.add("mul", product, g.const(np.float64(0.3)))
    run_pass(FoldBatchNorm(), g)
    assert "mul" in ops(g)


def test_number_without_a_layer_stays():
    g, x = start("matmul")
    y = g.add("relu", layer(g, x, "matmul"), name="r")
    y = g.add("reshape", y, attrs={"shape": (-1, 2, 3)})
    g.outputs["y"] = g.add("mul", y, g.const(np.float64(0.3)), name="scaled")
    run_pass(FoldBatchNorm(), g)
    assert "mul" in ops(g)


def test_number_that_makes_weights_infinite_stays():
    g = Graph("net")
    x = g.input("x", "float32", (2, CIN))
    y = g.add("matmul", x, g.const(np.full((CIN, 6), 1e30, np.float32)))
    y = g.add("reshape", y, attrs={"shape": (-1, 2, 3)})
    g.outputs["y"] = g.add("mul", y, g.const(np.float32(1e30)), name="scaled")
    FoldBatchNorm().run(g)
    assert "mul" in ops(g)
