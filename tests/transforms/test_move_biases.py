"""The bias of a sum of layers becomes the bias of one of them."""

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.types import Moments
from qgraph.transforms.move_biases import MoveBiases
from tests.helpers.evaluate import reasons, run_pass
from tests.helpers.graphs import ops

BIAS = np.array([1.0, -2.0, 3.0])


def layer(graph: Graph, name: str, bias: np.ndarray | None = None) -> str:
    x = graph.input(f"{name}/x", "float64", (None, 4))
    rng = np.random.default_rng(len(name))
    y = graph.add("matmul", x, graph.const(rng.normal(size=(4, 3)), f"{name}/w"), name=name)
    if bias is None:
        return y
    return graph.add("bias_add", y, graph.const(bias, f"{name}/b"), name=f"{name}/biased")


def network(total, *, op: str = "bias_add", bias: np.ndarray = BIAS) -> Graph:
    """`total(graph)`, and a bias behind it."""
    graph = Graph("net")
    made = graph.add(op, total(graph), graph.const(bias, "bias"), name="y")
    graph.outputs["y"] = graph.add("tanh", made)
    return graph


def biases(graph: Graph) -> dict[str, list[float]]:
    made = [node for node in graph.topological() if node.op == "bias_add"]
    return {n.inputs[0]: [float(v) for v in graph.constant(n.inputs[1])] for n in made}


def two(first: np.ndarray | None = None, second: np.ndarray | None = None, op: str = "add"):
    return lambda g: g.add(op, layer(g, "a", first), layer(g, "b", second), name="sum")


@pytest.mark.parametrize("op", ["bias_add", "add"])
@pytest.mark.parametrize("kind", ["add", "sub"])
def test_the_first_layer_takes_it(op, kind) -> None:
    graph = network(two(op=kind), op=op)
    run_pass(MoveBiases(), graph)
    assert biases(graph) == {"a": [*BIAS]} and ops(graph)[-2:] == [kind, "tanh"]


def test_biases_are_added_up() -> None:
    graph = network(two(np.ones(3)))
    run_pass(MoveBiases(), graph)
    assert biases(graph) == {"a": [*(BIAS + 1)]}


def test_one_number_is_a_bias_too() -> None:
    graph = network(two(), op="add", bias=np.array(2.0))
    run_pass(MoveBiases(), graph)
    assert biases(graph) == {"a": [2, 2, 2]}


def test_a_sum_of_three_layers() -> None:
    def total(g: Graph) -> str:
        shared = layer(g, "a")
        g.outputs["a"] = shared
        return g.add("add", shared, g.add("add", layer(g, "bb"), layer(g, "ccc")))

    graph = network(total)
    run_pass(MoveBiases(), graph)
    assert biases(graph) == {"bb": [*BIAS]}


def shared_layers(g: Graph) -> str:
    values = [layer(g, "a"), layer(g, "b")]
    for value in values:
        g.outputs[value] = value
    return g.add("add", *values, name="sum")


def shared_sum(g: Graph) -> str:
    g.outputs["sum"] = two()(g)
    return g.outputs["sum"]


def shared_behind_a_bias(g: Graph) -> str:
    value = layer(g, "a", np.ones(3))
    g.outputs["a"] = "a"
    return g.add("add", value, g.input("rows", "float64", (None, 3)), name="sum")


def no_layers(g: Graph) -> str:
    return g.add("add", *(g.input(n, "float64", (None, 3)) for n in "ab"), name="sum")


@pytest.mark.parametrize(
    "total", [shared_layers, shared_sum, shared_behind_a_bias, no_layers], ids=lambda f: f.__name__
)
def test_refusals(total) -> None:
    graph = network(total)
    before = biases(graph)
    ((node, reason),) = reasons(run_pass(MoveBiases(), graph))
    assert node == "y" and reason == "no layer of the sum `sum` is used by it alone"
    assert biases(graph) == before


def test_a_sum_that_becomes_larger() -> None:
    graph = network(two(), op="add", bias=np.ones((2, 3)))
    run_pass(MoveBiases(), graph)
    assert biases(graph) == {}


def test_statistics_move_too() -> None:
    graph = network(two(np.ones(3)))
    known = Moments(np.zeros(3), np.ones(3))
    graph.moments |= dict.fromkeys(("a", "a/biased", "sum"), known)
    run_pass(MoveBiases(), graph)
    assert [*graph.moments["a"].mean] == [0, 0, 0]
    assert [*graph.moments["a/biased"].mean] == [*graph.moments["sum"].mean] == [*BIAS]
