"""The generator of graphs draws every op that becomes integers, with more than one value of each
attribute; every other op has a reason and its own graph.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.ops import OPS
from qgraph.ir.ops.arithmetic import FUNCTIONS
from qgraph.ir.printing import print_graph
from tests.helpers.generators.graphs import WITH_ISLANDS, random_graph
from tests.helpers.op_graphs import CASES

SEEDS = 400
INSERTED = (
    "quantize",
    "lookup",
    "standardize",
    "integer_softmax",
)  # by passes, into every network that is quantized
BATCH = ("space_to_batch", "batch_to_space")  # they mix samples; tests of dilated layers have them
FLOAT = (
    *("composed", "tabulated", "squared_difference", "exp", "expm1", "log", "log1p"),
    "reciprocal",
    *FUNCTIONS,
    *("greater_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_not"),
    *("cast", "argmax", "embedding", "opaque"),
)  # in graphs of one op
ONE_VALUE = {  # attributes that each graph has with one value
    ("batch_norm", "epsilon"),
    ("composed", "steps"),
    ("depthwise_conv2d", "dilations"),
    ("log_softmax", "axis"),
    ("softmax", "axis"),
    ("sum", "axes"),
    ("sum", "keepdims"),
    ("mean", "axes"),
    ("mean", "keepdims"),
    ("reduce_max", "keepdims"),
    ("slice", "end"),
    ("space_to_depth", "block"),
    ("depth_to_space", "block"),
    ("hard_sigmoid", "alpha"),
    ("hard_sigmoid", "beta"),
    ("elu", "alpha"),
    ("gelu", "approximate"),
}


@pytest.fixture(scope="module")
def drawn() -> list[Graph]:
    return [random_graph(seed, 8, "float32", WITH_ISLANDS) for seed in range(SEEDS)]


@pytest.mark.parametrize("op", OPS)
def test_every_op_is_drawn_or_has_a_reason(op: str, drawn: list[Graph]) -> None:
    found = sum(node.op == op for graph in drawn for node in graph.nodes.values())
    if op in (*INSERTED, *BATCH, *FLOAT):
        assert not found, f"{op}: is drawn; take it from the list"
        assert op in CASES or op in INSERTED, f"{op}: no graph in tests/helpers/op_graphs.py"
    else:
        assert found, f"{op}: never drawn by tests/helpers/generators, and no reason for it here"


def test_attributes_have_several_values(drawn: list[Graph]) -> None:
    values = defaultdict(set)
    for node in (node for graph in drawn for node in graph.nodes.values()):
        for name, value in node.attrs.items() if node.op not in ("input", "const") else ():
            values[node.op, name].add(str(value))
    single = {key for key, found in values.items() if len(found) == 1}
    assert single <= ONE_VALUE


def test_a_seed_gives_the_same_graph() -> None:
    assert print_graph(random_graph(5)) == print_graph(random_graph(5))
    assert print_graph(random_graph(5)) != print_graph(random_graph(6))
