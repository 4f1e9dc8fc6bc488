"""FakeQuant ops of quantization-aware training."""

import numpy as np
import pytest
import tensorflow as tf

import qgraph
from qgraph.frontends import load_graph_def
from qgraph.interpret import evaluate
from tests.helpers.tf_graphs import graph_def_of, v1

vars_ = tf.quantization.fake_quant_with_min_max_vars
args = tf.quantization.fake_quant_with_min_max_args
RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 6)).astype(np.float32)
WEIGHTS = [RNG.normal(0, 0.5, shape).astype(np.float32) for shape in ((6, 16), (16, 3))]


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: vars_(x, -1.0, 1.0), None),
        (lambda x: vars_(x, 0.0, 6.0), "relu"),
        (lambda x: args(x, -2, 2), None),
        (lambda x: args(x, 0, 2, num_bits=4), "relu"),
    ],
)
def test_those_of_activations_are_left_out(function, op) -> None:
    graph = load_graph_def(
        graph_def_of(lambda: function(v1.placeholder("float32", (None, 6), "x")))
    )
    assert {n.op for n in graph.topological()} <= {"input", "identity", op}
    (found,) = evaluate(graph, {"x": X}).values()
    np.testing.assert_array_equal(found, np.maximum(X, 0) if op else X)
    assert len(graph.notes) == 1 and "FakeQuant ops" in graph.notes[0]


def test_a_range_that_is_computed_keeps_its_op() -> None:
    def build():
        x = v1.placeholder("float32", (None, 6), "x")
        return vars_(x, tf.reduce_min(x), tf.reduce_max(x))

    graph = load_graph_def(graph_def_of(build))
    assert any(n.op == "opaque" for n in graph.topological()) and not graph.notes


def test_a_trained_network_has_integers_and_its_rounded_weights(tmp_path) -> None:
    """As TFMOT writes it: FakeQuant on weights, on the input and behind the activations."""

    def build():
        x = args(v1.placeholder("float32", (None, 6), "x"), -4, 4)
        first = vars_(tf.constant(WEIGHTS[0]), -1.5, 1.5, num_bits=4)
        hidden = vars_(tf.nn.relu(tf.matmul(x, first)), 0.0, 6.0)
        return tf.matmul(hidden, vars_(tf.constant(WEIGHTS[1]), -1.5, 1.5))

    (tmp_path / "net.pb").write_bytes(graph_def_of(build).SerializeToString())
    made = qgraph.quantize(tmp_path / "net.pb", X, effort="plain")
    assert any("FakeQuant ops" in note for note in made.facts.notes)
    found = qgraph.verify(made.save(tmp_path / "out"), forms=["engine", "tensorflow"])
    assert found.equal and not found.network.program.has_islands
    weights = next(n for n in made.floating.nodes.values() if n.op == "matmul").inputs[1]
    rounded = made.floating.constant(weights)
    assert rounded is not None and len(np.unique(rounded)) <= 16
