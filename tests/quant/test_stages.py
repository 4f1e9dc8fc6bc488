"""Nodes that run in one pass give what they give one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qgraph import kernels
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Overflow, QuantSpec, Role
from qgraph.parallel import over_chunks
from qgraph.quant.graph_values import GraphValues
from qgraph.quant.samples.data import chunk_count, chunk_inputs
from qgraph.quant.stages import linked

WIDE = QuantSpec(16, True, Role.INTERNAL, 9)
BIAS = np.array([1, -2, 3], np.float32)
CEILING = np.array([2, 0.5, 1], np.float32)
ENDS = ("r", "taken", "a", "wrapped", "below", "wide")


def network() -> Graph:
    """Whole stages, one whose sum is taken twice, one that starts with a wrapping spec, and one
    whose ceiling broadcasts.
    """
    g = Graph("net")
    b = g.const(BIAS, "b")
    wrapping = QuantSpec(4, True, Role.INTERNAL, 2, overflow=Overflow.WRAP)
    g.input("x", "float32", (None, 4, 4, 3))
    g.add("quantize", "x", name="q", attrs={"spec": WIDE})
    g.add("bias_add", "q", b, name="sum")
    g.add("relu6", "sum", name="r")
    g.add("quantize", "r", name="q2", attrs={"spec": WIDE})
    g.add("bias_add", "q2", b, name="a")
    g.add("relu", "a", name="taken")
    g.add("quantize", "x", name="w", attrs={"spec": wrapping})
    g.add("relu", "w", name="wrapped")
    c = g.const(CEILING, "c")
    g.add("quantize", "x", name="q3", attrs={"spec": WIDE})
    g.add("relu", "q3", name="positive")
    g.add("minimum", "positive", c, name="below")
    g.add("mean", "x", name="single", attrs={"axes": (3,), "keepdims": True})
    g.add("minimum", "single", c, name="wide")
    g.outputs = {name: g.add("identity", name, name=f"{name}_last") for name in ENDS}
    return g


def passed_on(graph: Graph) -> Callable[[str], bool]:
    return lambda value: graph.use_count(value) == 1


def test_only_what_nothing_else_takes_is_joined() -> None:
    g = network()
    nodes = [n for n in g.topological() if n.op not in ("input", "const", "identity")]
    links = linked(nodes, {"b": BIAS, "c": CEILING}, passed_on(g))
    assert [tuple(n.name for n in link.nodes) for link in links] == [
        ("q", "sum", "r"), ("q2", "a"), ("taken",), ("w",), ("wrapped",),
        ("q3", "positive", "below"), ("single",), ("wide",),
    ]  # fmt: skip
    assert [n.name for link in linked(nodes, {}, passed_on(g)) for n in link.nodes] == [
        n.name for n in nodes
    ]
    assert links[3].stage is None


def test_values_and_their_ends_are_those_of_single_nodes() -> None:
    g = network()
    x = np.random.default_rng(1).normal(size=(40, 4, 4, 3)).astype(np.float32) * 4
    given = x.copy()
    chunks, wanted = chunk_inputs(g, {"x": x}), evaluate(g, {"x": x})
    with over_chunks(chunk_count(chunks)) as each:
        values = GraphValues(g, chunks, each)
        for node in g.topological():
            if not node.name.endswith("_last"):
                values.run(node)
        for name in ENDS:
            ends = values.reduced(name, lambda x, known: known or kernels.minmax(x))
            found = np.concatenate([*values.chunks(name)])
            np.testing.assert_array_equal(found, wanted[name])
            assert (min(e[0] for e in ends), max(e[1] for e in ends)) == (found.min(), found.max())
    np.testing.assert_array_equal(x, given)
