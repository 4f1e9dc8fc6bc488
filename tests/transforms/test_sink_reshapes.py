"""Biases and activations of dense layers on rows stay next to their layer."""

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.transforms.sink_reshapes import SinkReshapes
from tests.helpers.evaluate import run_pass

RNG = np.random.default_rng(0)


def constant(g: Graph, *shape: int) -> str:
    return g.const(RNG.integers(-4, 5, shape).astype(np.float32), "c")


def rows(g: Graph, name: str = "x", shape=(-1, 3, 2, 4), width: int = 8) -> str:
    """A dense layer on rows, then reshaped."""
    x = g.input(name, "float32", (6, 5))
    product = g.add("matmul", x, constant(g, 5, width), name=f"{name}/fc")
    return g.add("reshape", product, name=f"{name}/heads", attrs={"shape": shape})


def sunk(g: Graph, y: str) -> list[str]:
    """The ops behind the layers, in order, after the pass; the function must not change."""
    g.outputs["y"] = y
    feeds = {name: RNG.integers(-4, 5, (6, 5)).astype(np.float32) for name in g.inputs}
    wanted, known = evaluate(g, feeds)["y"], g.types[y]
    run_pass(SinkReshapes(), g)
    np.testing.assert_array_equal(evaluate(g, feeds)["y"], wanted)
    assert g.types[g.outputs["y"]] == known
    return [n.op for n in g.topological() if n.op not in ("input", "const", "matmul")]


def test_golden():
    g = Graph("net")
    x = g.input("x", "float32", (6, 2))
    fc = g.add("matmul", x, g.const(np.eye(2, dtype=np.float32), "w"), name="fc")
    y = g.add("reshape", fc, name="r", attrs={"shape": (-1, 3, 2, 1)})
    y = g.add("add", y, g.const(np.float32([[1], [2]]), "c"), name="a")
    g.outputs["y"] = g.add("relu", y, name="y")
    run_pass(SinkReshapes(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float32[6,2]}\n"
        "  %w = const {value=float32[2,2]:[1.0,0.0,0.0,1.0]}\n"
        "  %fc = matmul(%x, %w) : float32[6,2]\n"
        "  %c/channels = const {value=float32[2]:[1.0,2.0]}\n"
        "  %a/rows = add(%fc, %c/channels) : float32[6,2]\n"
        "  %y/rows = relu(%a/rows) : float32[6,2]\n"
        "  %y = reshape(%y/rows) {shape=(-1, 3, 2, 1)} : float32[2,3,2,1]\n"
        '  return "y" = %y\n'
        "}\n"
    )


@pytest.mark.parametrize("op", ["add", "mul", "maximum", "sub", "div"])
@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 4), (2, 1), (1, 1, 4), (1, 1, 2, 4)])
def test_constants_along_the_channels(op, shape):
    g = Graph("net")
    c = g.const(2.0 ** RNG.integers(-2, 3, shape).astype(np.float32), "c")
    assert sunk(g, g.add(op, rows(g), c)) == [op, "reshape"]


@pytest.mark.parametrize("shape", [(3, 1, 1), (3, 2, 4), (2, 3, 2, 4), (1, 1, 1, 2, 4)])
def test_other_constants_stay_behind_the_reshape(shape):
    g = Graph("net")
    ops = sunk(g, g.add("add", rows(g), constant(g, *shape)))
    assert ops == ["reshape", "add"]


def test_two_layers_and_their_activation():
    g = Graph("net")
    total = g.add("add", rows(g), rows(g, "u"))
    assert sunk(g, g.add("relu", total)) == ["add", "relu", "reshape"]


def test_layers_that_are_reshaped_in_different_ways():
    g = Graph("net")
    total = g.add("add", rows(g), rows(g, "u", (-1, 3, 1, 4), 4))
    assert sunk(g, total) == ["reshape", "reshape", "add"]


def test_norms_and_biases_of_the_last_axis():
    g = Graph("net")
    x = rows(g, shape=(-1, 2, 8))
    vectors = [g.const(np.abs(RNG.normal(size=8)).astype(np.float32)) for _ in range(5)]
    y = g.add("bias_add", g.add("batch_norm", x, *vectors[1:], attrs={"epsilon": 0.5}), vectors[0])
    assert sunk(g, y) == ["batch_norm", "bias_add", "reshape"]


def test_reshapes_that_join_channels_with_others():
    g = Graph("net")
    flat = rows(g, shape=(-1, 24))
    assert sunk(g, g.add("bias_add", flat, constant(g, 24))) == ["reshape", "bias_add"]
    g = Graph("net")
    assert sunk(g, g.add("relu", rows(g, shape=(-1, 24)))) == ["relu", "reshape"]


def test_what_no_layer_computes_stays():
    g = Graph("net")
    x = g.add("reshape", g.input("x", "float32", (6, 5)), attrs={"shape": (-1, 2, 5)})
    assert sunk(g, g.add("relu", x)) == ["reshape", "relu"]


def test_a_layer_on_the_rows_of_another():
    g = Graph("net")
    y = g.add("relu", rows(g, shape=(-1, 3, 8)))
    y = g.add("matmul", g.add("reshape", y, attrs={"shape": (-1, 8)}), constant(g, 8, 2))
    assert sunk(g, g.add("reshape", y, attrs={"shape": (-1, 3, 2)})) == ["relu", "reshape"]
    g = Graph("net")
    joined = g.add("reshape", rows(g), attrs={"shape": (-1, 24)})
    assert sunk(g, joined) == ["reshape"]


def test_reshapes_to_the_same_shape_are_removed():
    g = Graph("net")
    y = g.add("reshape", rows(g), attrs={"shape": (-1, 3, 2, 4)})
    assert sunk(g, g.add("reshape", y, attrs={"shape": (-1, 8)})) == []
    g = Graph("net")
    y = g.add("reshape", g.input("x", "float32", (6, 5)), attrs={"shape": (6, -1)})
    assert sunk(g, g.add("relu", y)) == ["relu"]
