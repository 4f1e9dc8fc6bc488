"""Ops that are computed in float: at the ends of a network, and between its integer layers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import UnsupportedError
from qgraph.exact.float_parts import float_between, float_nodes
from qgraph.ir.graph import Graph
from qgraph.ir.types import QuantSpec
from qgraph.program import lower
from qgraph.program.islands import islands
from tests.helpers.quantized import PROFILES, random_network

CODES = QuantSpec(8, True, "input", 4)


def names(nodes) -> list[str]:
    return [node.name for node in nodes]


def test_float_between_integer_layers_and_at_the_ends_are_distinguished() -> None:
    g = Graph("parts")
    x = g.input("x", "float32", (None, 4))
    before = g.add("tanh", x, name="before")
    codes = g.add("quantize", before, attrs={"spec": CODES})
    inside = g.add("exp", codes, name="inside")
    again = g.add("quantize", inside, attrs={"spec": CODES})
    aside = g.add("exp", codes, name="aside")
    g.outputs = {"y": g.add("softmax", again, name="behind"), "z": aside}
    assert sorted(names(float_nodes(g))) == ["aside", "before", "behind", "inside"]
    assert names(float_between(g)) == ["inside"]


def test_what_constants_alone_decide_is_not_computed() -> None:
    g = Graph("constants")
    x = g.input("x", "float32", (None, 4))
    weight = g.add("identity", g.const(np.eye(4, dtype=np.float32), "w"), name="read")
    codes = g.add("quantize", x, attrs={"spec": CODES})
    fixed = g.add("quantize", weight, attrs={"spec": CODES})
    g.outputs = {"y": g.add("matmul", codes, fixed)}
    assert float_nodes(g) == [] == float_between(g)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(sorted(PROFILES)))
def test_float_ops_between_integer_layers_are_islands(seed: int, profile: str) -> None:
    graph = random_network(seed, profile)
    between = names(float_between(graph))
    try:
        program = lower(graph)
    except UnsupportedError as error:
        assert "nothing is computed in integers" in error.message and not between
        return
    assert program.has_islands == bool(between)
    found = [name for island in islands(graph, program) for name in names(island.nodes)]
    assert sorted(found) == sorted(between)
