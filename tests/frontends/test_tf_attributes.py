"""Every attribute of every TensorFlow op that is read, by TensorFlow's own op definitions.

What is read of a node with a changed attribute has to be what TensorFlow computes, or the node is
left to TensorFlow, or refused.
"""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import QGraphError
from qgraph.frontends import load_graph_def
from qgraph.interpret import evaluate
from qgraph.ir.printing import print_graph
from tests.helpers.graphs import opaque_kinds
from tests.helpers.tf_attributes import (
    NODES,
    attributes,
    changed,
    graph_def_for,
    values_of,
    without_defaults,
)
from tests.helpers.tf_graphs import run_tf
from tests.helpers.tf_layers import FIXED

# Fused ops, written by TensorFlow's optimiser alone, are in test_fused_ops.py; images in NCHW, that
# no CPU runs, in test_layouts.py; batch norms of before 2016 in test_ops.py. FakeQuant ops are left
# out on purpose (test_fake_quantizers.py).
ELSEWHERE = ("_Fused", "BatchNormWithGlobalNormalization", "FakeQuant")
# Never read: every value but the default is left to TensorFlow, or refused.
LEFT = {("GatherV2", "batch_dims"), ("Cast", "Truncate")}
X = np.random.default_rng(0).standard_normal(FIXED).astype(np.float32)
ATTRIBUTES = [
    (op, a) for op, a in attributes() if not op.startswith(ELSEWHERE) and a.type != "tensor"
]


def verdict(graph_def, op):
    """`read`, `opaque`, `refused` or `senseless`; asserts that what is read is right."""
    try:
        graph = load_graph_def(graph_def)
        found = evaluate(graph, dict.fromkeys(graph.inputs, X))
    except QGraphError:
        return "refused"
    if op in opaque_kinds(graph):
        return "opaque"
    try:
        wanted = run_tf(graph_def, {"x": X}, list(graph.outputs))
    except (ValueError, TypeError, tf.errors.OpError):
        return "senseless"
    for a, b in zip(found.values(), wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, 1e-5, 1e-5)
    return "read"


@pytest.mark.parametrize(("op", "attr"), ATTRIBUTES, ids=[f"{o}-{a.name}" for o, a in ATTRIBUTES])
def test_every_attribute_is_read_or_the_node_is_not(op, attr):
    graph_def = graph_def_for(op)
    verdicts = Counter(verdict(changed(graph_def, op, attr, v), op) for v in values_of(op, attr))
    assert verdicts["read"] or (op, attr.name) in LEFT, verdicts


def test_attributes_without_a_value_count_as_missing():
    """Protobuf adds one to every node that a script asks for an attribute it does not have."""
    graph_def = graph_def_for("Conv2D")
    before = print_graph(load_graph_def(graph_def))
    for node in graph_def.node:
        assert node.attr["no_such_attribute"].WhichOneof("value") is None
    assert print_graph(load_graph_def(graph_def)) == before


@pytest.mark.parametrize("op", NODES)
def test_attributes_that_are_left_out_hold_the_defaults_of_tensorflow(op):
    graph_def = graph_def_for(op)
    plain = load_graph_def(without_defaults(graph_def))
    assert print_graph(plain) == print_graph(load_graph_def(graph_def))
