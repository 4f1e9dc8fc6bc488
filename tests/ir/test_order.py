"""Depth-first order over names."""

import pytest

from qgraph.errors import GraphError
from qgraph.ir.graph import Graph
from qgraph.ir.order import inputs_first


def needs(graph):
    return lambda name: graph.get(name, ())


def test_needs_come_before_what_needs_them_in_the_order_given():
    diamond = {"d": ["b", "c"], "b": ["a"], "c": ["a"], "e": ["d"]}
    assert inputs_first(["d"], needs(diamond)) == ["a", "b", "c", "d"]
    assert inputs_first(["c", "e", "d"], needs(diamond)) == ["a", "c", "b", "d", "e"]
    assert inputs_first([], needs(diamond)) == []


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [({"a": ["a"]}, "a -> a"), ({"a": ["x", "b"], "b": ["c"], "c": ["b"]}, "b -> c -> b")],
)
def test_a_cycle_is_named(graph, cycle):
    with pytest.raises(GraphError, match=f"the graph has a cycle: {cycle}$"):
        inputs_first(["a"], needs(graph))


def test_a_chain_of_a_hundred_thousand_needs_no_recursion():
    order = inputs_first([100_000], lambda n: [n - 1] if n else [])
    assert order == list(range(100_001))


def test_ancestors_are_what_values_depend_on():
    graph = Graph()
    x = graph.input("x", "float32", (2, 4))
    y = graph.add("relu", x, name="y")
    graph.add("tanh", y, name="z")
    waits = graph.add("tanh", x, name="waits", control=("z",))
    assert graph.ancestors([y]) == {"x", "y"}
    assert graph.ancestors([waits]) == {"x", "y", "z", "waits"}
    assert graph.ancestors([]) == set()
