"""`IF` and `WHILE` are written out where conditions are known; the graph computes the same."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

pytest.importorskip("tflite", reason="pip install tflite")
pytest.importorskip("ai_edge_litert", reason="pip install ai-edge-litert")

import tensorflow as tf
import tf_keras as keras

import qgraph
from qgraph.errors import GraphError, UnsupportedError
from qgraph.frontends import load
from qgraph.frontends.tflite.importing import import_tflite
from qgraph.frontends.tflite.model import read
from qgraph.frontends.tflite.operators import control
from qgraph.frontends.tflite.tensors import LiteScale
from qgraph.stored import load_network
from tests.helpers.evaluate import random_feeds
from tests.helpers.tflite_files import assert_same_as_litert, converted, operators_of

STEPS, WIDTH, UNITS = 4, 3, 4
WEIGHTS = tf.constant(np.random.default_rng(0).normal(0, 0.4, (WIDTH, WIDTH)).astype("f4"))


def layer(h):
    return tf.tanh(h @ WEIGHTS)


def rows(x):
    """As many steps as x has rows."""
    start = (tf.constant(0), tf.zeros((1, WIDTH)))

    def step(i, h):
        return i + 1, layer(h) + tf.gather(x, [i])

    return tf.while_loop(lambda i, _: i < tf.shape(x)[0], step, start)[1]


def nested(x):
    """Loops of two steps in each step of a loop of three."""

    def steps(count, function, h):
        start = (tf.constant(0), h)
        return tf.while_loop(lambda i, _: i < count, lambda i, h: (i + 1, function(h)), start)[1]

    return steps(3, lambda h: steps(2, layer, h) + x, x)


def branch(x):
    return tf.cond(tf.shape(x)[0] > 2, lambda: layer(x), lambda: x - 3.0)


def branch_by_value(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: layer(x), lambda: x - 3.0)


def gru(steps=STEPS):
    keras.utils.set_random_seed(0)
    x = keras.layers.Input((steps, WIDTH), batch_size=1)
    h = keras.layers.GRU(UNITS, return_sequences=True)(x)
    return keras.Model(x, keras.layers.Dense(2)(keras.layers.SimpleRNN(UNITS)(h)))


CASES = {
    "rows": ((None, WIDTH), rows),
    "nested": ((2, WIDTH), nested),
    "branch": ((None, WIDTH), branch),
    "branch by value": ((2, WIDTH), branch_by_value),
}


@cache
def file_of(name):
    if name == "gru":
        data: bytes = tf.lite.TFLiteConverter.from_keras_model(gru()).convert()
        return data
    shape, function = CASES[name]
    return converted(function, [shape])


def graph_of(name, tmp_path, **options):
    (tmp_path / "m.tflite").write_bytes(file_of(name))
    return load(tmp_path / "m.tflite", **options)


def test_every_operator_is_here():
    assert set(control.OPERATORS) <= set().union(*map(operators_of, map(file_of, CASES)))


@pytest.mark.parametrize("name", ["nested", "gru"])
def test_loops_compute_what_litert_computes(name, tmp_path):
    graph = graph_of(name, tmp_path)
    assert "WHILE" in operators_of(file_of(name))
    assert_same_as_litert(graph, file_of(name), random_feeds(graph, batch=1))


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", ["rows", "branch"])
def test_conditions_may_come_from_shapes(name, count, tmp_path):
    """The number of rows, which the file leaves open, is given."""
    with pytest.raises(UnsupportedError, match=r"depends on the input|of this loop is unknown"):
        graph_of(name, tmp_path)
    graph = graph_of(name, tmp_path, input_shapes={"": (count, WIDTH)})
    (feed,) = random_feeds(graph, batch=1).values()
    interpreter = tf.lite.Interpreter(model_content=file_of(name))
    (given,), (made,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(given["index"], feed.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(given["index"], feed)
    interpreter.invoke()
    (found,) = qgraph.interpret.evaluate(graph, {graph.inputs[0]: feed}).values()
    np.testing.assert_allclose(found, interpreter.get_tensor(made["index"]), rtol=0, atol=1e-5)


def test_a_branch_by_values_is_refused_by_name(tmp_path):
    with pytest.raises(UnsupportedError, match="the condition of this `IF` depends on the input"):
        graph_of("branch by value", tmp_path)


def test_steps_share_weights_and_rows_are_joined_once(tmp_path):
    graph = graph_of("gru", tmp_path)
    ops = [node.op for node in graph.nodes.values()]
    assert ops.count("matmul") == 4 * STEPS + 1, "two for each step of each layer, and the last"
    assert len([n for n in graph.nodes if n.endswith("/weights")]) == 5
    assert ops.count("concat") == 1


def test_a_loop_is_quantized(tmp_path):
    (tmp_path / "m.tflite").write_bytes(file_of("gru"))
    samples = np.random.default_rng(0).normal(size=(8, STEPS, WIDTH)).astype("f4")
    made = qgraph.quantize(tmp_path / "m.tflite", samples, effort="plain")
    assert not load_network(made.save(tmp_path / "out")).program.has_islands


def test_codes_in_a_loop_keep_one_scale():
    """Codes enter a body as they are, so another scale inside would change their numbers."""
    model = read(file_of("nested"))
    scale = LiteScale(np.array([0.5]), np.array([0]), 0)
    for number in range(1, len(model.subgraphs)):
        body = model.subgraphs[number]
        tensors = tuple(replace(t, scale=scale) for t in body.tensors)
        changed = [*model.subgraphs]
        changed[number] = replace(body, tensors=tensors)
        with pytest.raises(UnsupportedError, match=r"inside and outside of `WHILE`.*differ"):
            import_tflite(replace(model, subgraphs=tuple(changed)))


def test_a_subgraph_that_runs_itself_is_refused():
    model = read(file_of("nested"))
    network = model.network
    (loop,) = (operator for operator in network.operators if operator.op == "WHILE")
    body = replace(network, inputs=loop.inputs, outputs=loop.outputs)
    several = (network, model.subgraphs[1], *[body] * (len(model.subgraphs) - 2))
    with pytest.raises((GraphError, UnsupportedError), match=r"runs itself|differ|computed"):
        import_tflite(replace(model, subgraphs=several))
