import numpy as np
import pytest
import tensorflow as tf

from qgraph.frontends import load_graph_def
from qgraph.ir.graph import Graph
from qgraph.transforms.fold_repeated_rows import FoldRepeatedRows
from tests.helpers.evaluate import run_pass
from tests.helpers.tf_graphs import graph_def_of, v1

W = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def imported(build) -> Graph:
    """A graph of one open batch, in which constants of scalars are folded."""
    return load_graph_def(graph_def_of(lambda: build(v1.placeholder("float32", (None, 3), "x"))))


def filled(x, number, width=3):
    return tf.fill((tf.shape(x)[0], width), np.float32(number))


def ops(graph: Graph) -> list[str]:
    return sorted(n.op for n in graph.nodes.values() if n.op not in ("const", "input", "identity"))


@pytest.mark.parametrize(
    ("build", "left"),
    [
        (lambda x: x + filled(x, 2), ["add"]),
        (lambda x: filled(x, 2) - x, ["sub"]),
        (lambda x: x * tf.ones_like(x), ["mul"]),
        (lambda x: x @ W + filled(x, 2) @ W, ["add", "matmul"]),
        (lambda x: x @ W + tf.nn.bias_add(filled(x, 2) @ W, W[0]), ["add", "matmul"]),
        (lambda x: x + tf.tanh(filled(x, 2) * 3), ["add"]),
        (lambda x: x[:, 1:] + filled(x, 2, 5)[:, 3:], ["add", "slice"]),
        (lambda x: x + tf.sigmoid(x) * filled(x, 0), ["add"]),
        (lambda x: x + tf.exp(x) * filled(x, 0), ["add", "exp", "mul"]),  # infinity times 0
        (lambda x: x + tf.sigmoid(x)[:, :1] * filled(x, 0), ["add"]),
    ],
)
def test_equal_rows_become_one(build, left) -> None:
    graph = imported(build)
    run_pass(FoldRepeatedRows(), graph, 1e-6)
    assert ops(graph) == left


@pytest.mark.parametrize(
    "build",
    [
        lambda x: filled(x, 2) + filled(x, 3),  # of an unknown number of samples
        lambda x: tf.concat([x, filled(x, 2)], 1),
    ],
)
def test_others_stay(build) -> None:
    graph = imported(build)
    before = ops(graph)
    run_pass(FoldRepeatedRows(), graph, 1e-6)
    assert ops(graph) == before


def test_a_select_between_equal_rows() -> None:
    """As ONNX broadcasts a constant to an open batch."""
    graph = Graph("net")
    x = graph.input("x", "float32", (None, 3))
    row = graph.const(np.full((1, 3), 0.5, np.float32), "row")
    flags = graph.add("equal", x, x)
    graph.outputs["y"] = graph.add("mul", x, graph.add("select", flags, row, row))
    run_pass(FoldRepeatedRows(), graph, 1e-6)
    assert ops(graph) == ["mul"]
