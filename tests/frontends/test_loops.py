"""Loops with a known number of steps are written out, as those of recurrent layers of Keras."""

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras2

from qgraph import load
from qgraph.errors import GraphError, UnsupportedError
from qgraph.frontends import load_graph_def
from qgraph.interpret import evaluate
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT
from tests.helpers.graphs import opaque_kinds
from tests.helpers.tf_graphs import assert_same_as_tf, graph_def_of, v1

STEPS, FEATURES = 4, 3
LAYERS = {
    "lstm": lambda L: L.LSTM(5),
    "lstm of sequences": lambda L: L.LSTM(5, return_sequences=True),
    "gru": lambda L: L.GRU(5),
    "gru, reset before": lambda L: L.GRU(5, reset_after=False, return_sequences=True),
    "simple": lambda L: L.SimpleRNN(5),
    "without bias": lambda L: L.LSTM(5, use_bias=False),
    "relu": lambda L: L.LSTM(5, activation="relu", recurrent_activation="hard_sigmoid"),
    "dropout": lambda L: L.LSTM(5, dropout=0.3, recurrent_dropout=0.2),
    "unrolled": lambda L: L.LSTM(5, unroll=True),
    "backwards": lambda L: L.LSTM(5, go_backwards=True),
    "both ways": lambda L: L.Bidirectional(L.GRU(5, return_sequences=True)),
}


def network(keras, layer):
    keras.utils.set_random_seed(0)
    x = keras.layers.Input((STEPS, FEATURES), name="x")
    y = keras.layers.Flatten()(LAYERS[layer](keras.layers)(x))
    return keras.Model(x, keras.layers.Dense(2, bias_initializer="ones")(y))


def data(count=6):
    return np.random.default_rng(0).normal(size=(count, STEPS, FEATURES)).astype(np.float32)


def saved(model, path, kind):
    if kind == "memory":
        return model
    if kind != "saved":
        model.save(path / f"model.{kind}")
        return path / f"model.{kind}"
    if hasattr(model, "export"):
        model.export(path / "saved", verbose=False)
    return path / "saved"


def assert_read(model, source):
    graph = load(source)
    (found,) = evaluate(graph, {graph.inputs[0]: data()}).values()
    np.testing.assert_allclose(found, model(data()), atol=1e-6)
    return graph


@pytest.mark.parametrize("keras", [keras2, keras3], ids=["keras2", "keras3"])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_is_written_out(keras, layer) -> None:
    model = network(keras, layer)
    assert_read(model, model)


@pytest.mark.parametrize("kind", ["h5", "keras", "saved"])
@pytest.mark.parametrize("layer", ["lstm", "gru", "dropout"])
@pytest.mark.parametrize("keras", [keras2, keras3], ids=["keras2", "keras3"])
def test_every_kind_of_file_is_read(tmp_path, keras, layer, kind) -> None:
    model = network(keras, layer)
    if keras is keras2 and kind == "saved":
        tf.saved_model.save(model, str(tmp_path / "saved"))
        assert_read(model, tmp_path / "saved")
    else:
        assert_read(model, saved(model, tmp_path, kind))


@pytest.mark.parametrize("layer", ["lstm", "gru", "gru, reset before", "simple", "dropout"])
@pytest.mark.parametrize("keras", [keras2, keras3], ids=["keras2", "keras3"])
def test_no_float_op_remains(keras, layer) -> None:
    """The first state, zeros for each sample of an open batch, leaves no trace."""
    floating = load(network(keras, layer))
    PassManager(FLOAT).run(floating)
    assert not opaque_kinds(floating)
    weights = [n for n in floating.nodes.values() if n.op == "const" and n.attrs["value"].ndim > 1]
    products = {"gru, reset before": 3, "dropout": 8}.get(layer, 2)  # each is held once
    assert len(weights) == products + 1


def test_lists_that_a_loop_fills() -> None:
    @tf.function
    def sums(x):
        found = tf.TensorArray(tf.float32, 3)
        total = tf.zeros_like(x)
        for i in tf.range(3):
            total = tf.nn.relu(total + x * tf.cast(i, tf.float32))
            found = found.write(i, total)
        return found.stack()

    graph = assert_same_as_tf(graph_def_of(lambda: sums(v1.placeholder("float32", (None, 3), "x"))))
    assert not opaque_kinds(graph)


def test_loops_in_loops() -> None:
    @tf.function
    def nested(x):
        for _ in tf.range(3):
            for _ in tf.range(2):
                x = tf.nn.relu(x * 2 - 1)
        return x

    graph = assert_same_as_tf(
        graph_def_of(lambda: nested(v1.placeholder("float32", (None, 3), "x")))
    )
    assert sum(n.op == "relu" for n in graph.nodes.values()) == 6


def loop_of(steps):
    @tf.function
    def counted(x):
        for _ in tf.range(steps):
            x = tf.nn.relu(x)
        return x

    return graph_def_of(lambda: counted(v1.placeholder("float32", (None, 3), "x")))


def test_a_loop_of_no_steps_is_its_input() -> None:
    graph = assert_same_as_tf(loop_of(0))
    assert "relu" not in {n.op for n in graph.nodes.values()}


def test_too_many_steps_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"while: this loop has more than 1024 steps"):
        load_graph_def(loop_of(5000))


def test_a_loop_without_its_function_is_an_error() -> None:
    graph_def = loop_of(3)
    bodies = [f for f in graph_def.library.function if "body" in f.signature.name]
    for function in bodies:
        function.signature.name += "_gone"
    assert bodies
    with pytest.raises(GraphError, match=r"the function `\w+` is malformed"):
        load_graph_def(graph_def)
