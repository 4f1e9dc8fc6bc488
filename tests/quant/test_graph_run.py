"""A graph run by chunks gives what the interpreter gives, to the bit."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
import pytest

from qgraph.interpret import evaluate, run_node
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import QuantSpec, Role
from qgraph.quant import graph_run
from qgraph.quant.graph_run import GraphRun, unquantized
from tests.quant import test_graph_values, test_stages


def feeds() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(size=(8, 4, 4, 3)).astype(np.float32) * 4}


@pytest.mark.parametrize("network", [test_graph_values.network, test_stages.network])
def test_any_values_are_those_of_the_interpreter(network) -> None:
    """Outputs, and also values inside a stage or an op that works in place."""
    graph, given = network(), feeds()
    held = given["x"].copy()
    inner = [node.name for node in graph.topological() if node.op not in ("const", "input")]
    for wanted in (inner, [inner[-1]], ["q"], ["q", *graph.outputs]):
        found = GraphRun(graph, wanted)(given)
        expected = evaluate(graph, given, wanted)
        assert [*found] == wanted
        for name in wanted:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    np.testing.assert_array_equal(given["x"], held)


def test_values_are_reported_before_they_are_overwritten() -> None:
    graph, given = test_stages.network(), feeds()
    seen = [n.name for n in graph.topological() if n.op in ("input", "quantize", "bias_add")]
    passed: dict[str, np.ndarray] = {}
    run = GraphRun(graph, ["r"], seen)
    run(given, lambda name, x, ends: passed.update({name: x.copy()} if name in seen else {}))
    expected = evaluate(graph, given, seen)
    assert passed.keys() == {*seen}
    for name in seen:
        np.testing.assert_array_equal(passed[name], expected[name], err_msg=name)


def test_what_depends_on_no_input_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph("net")
    x = graph.input("x", "float32", (None, 3))
    spec = QuantSpec(8, True, Role.WEIGHT, 4)
    w = graph.add("quantize", graph.const(np.ones((3, 2), np.float32)), attrs={"spec": spec})
    graph.outputs["y"] = graph.add("matmul", x, w)
    ran: list[str] = []

    def watched(node: Node, inputs: Sequence[np.ndarray], in_place: bool = False) -> object:
        ran.append(node.op)
        return run_node(node, inputs, in_place)

    monkeypatch.setattr(graph_run, "run_node", watched)
    run = GraphRun(graph, [graph.outputs["y"]])
    for _ in range(2):
        run({"x": np.ones((2, 3), np.float32)})
    assert ran == ["quantize", "matmul", "matmul"]


def test_without_quantizers_values_are_those_in_front_of_them() -> None:
    graph, given = test_stages.network(), feeds()
    off = graph.copy()
    for name in ("q", "q2", "q3", "w"):
        off.replace(Node(name, "identity", graph.nodes[name].inputs))
    wanted = ["q", "sum", "r", "q2", *graph.outputs.values()]
    passed: set[str] = set()
    run = GraphRun(graph, wanted, ["q2"], quantized=False)
    found, expected = run(given, lambda name, *_: passed.add(name)), evaluate(off, given, wanted)
    for name in wanted:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert unquantized(graph, "q2") == "r" and "r" in passed and "q2" not in passed


def test_values_are_dropped_when_nothing_needs_them() -> None:
    graph = test_graph_values.network()
    made: dict[str, weakref.ref[np.ndarray]] = {}
    alive: dict[str, set[str]] = {}

    def passed(name: str, x: np.ndarray, ends: object) -> None:
        alive[name] = {n for n, array in made.items() if array() is not None}
        made[name] = weakref.ref(x)

    GraphRun(graph, [graph.outputs["r"]])(feeds(), passed)
    assert [*alive] == ["x", "of_input", "c", "r", "r_last"]
    assert "of_input" in alive["c"] and "of_input" not in alive["r"]
