"""Recurrent operators over sequences: the graph computes what LiteRT computes."""

import numpy as np
import pytest

pytest.importorskip("tflite", reason="pip install tflite")
pytest.importorskip("ai_edge_litert", reason="pip install ai-edge-litert")

import tensorflow as tf
import tf_keras as keras

import qgraph
from qgraph.backends.tflite.model_builder import TfliteModelBuilder
from qgraph.errors import UnsupportedError
from qgraph.frontends import load
from qgraph.frontends.tflite.operators import recurrent
from qgraph.stored import load_network
from tests.helpers.evaluate import random_feeds
from tests.helpers.tflite_files import assert_same_as_litert, operators_of

STEPS, WIDTH, UNITS = 5, 3, 4
RELU, TANH = 1, 4  # numbers of fused activations


class RecurrentFile:
    """A file with one recurrent operator."""

    def __init__(self, major, steps=STEPS):
        self.builder, self.rng = TfliteModelBuilder("m"), np.random.default_rng(0)
        self.ends = (steps, 2) if major else (2, steps)
        self.builder.inputs["x"] = self.builder.tensor("x", (*self.ends, WIDTH), "float32")

    def weights(self, *shape):
        array = self.rng.normal(size=shape).astype("f4")
        return self.builder.tensor("w", shape, "float32", data=array.tobytes())

    def state(self, units):
        made = self.builder.tensor("state", (2, units), "float32")
        self.builder._tensors[made].fields["IsVariable"] = True
        return made

    def written(self, op, inputs, units, options, **fields):
        made = self.builder.tensor("y", (*self.ends, units), "float32")
        inputs = [self.builder.inputs["x"], *inputs]
        self.builder.outputs["y"] = self.builder.operator(op, inputs, made, options, **fields)
        return self.builder.model({})


def lstm(*, coupled=False, peephole=False, projected=0, norms=False, major=False, **fields):
    file, units = RecurrentFile(major), projected or UNITS
    optional = 1 if coupled else 0

    def gates(first, *shape):
        return [-1] * first + [file.weights(*shape) for _ in range(4 - first)]

    inputs = gates(optional, UNITS, WIDTH) + gates(optional, UNITS, units)
    inputs += gates(1 + optional, UNITS)[1:] if peephole else [-1] * 3
    inputs += gates(optional, UNITS)
    inputs += [file.weights(units, UNITS), file.weights(units)] if projected else [-1, -1]
    inputs += [file.state(units), file.state(UNITS)]
    inputs += gates(optional, UNITS) if norms else []
    fields = {"FusedActivationFunction": TANH, "TimeMajor": major, **fields}
    options = "UnidirectionalSequenceLSTMOptions"
    return file.written("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, units, options, **fields)


def rnn(*, major=False, steps=STEPS, **fields):
    file = RecurrentFile(major, steps)
    inputs = [file.weights(UNITS, WIDTH), file.weights(UNITS, UNITS), file.weights(UNITS)]
    inputs += [file.state(UNITS)]
    fields = {"FusedActivationFunction": TANH, "TimeMajor": major, **fields}
    options = "SequenceRNNOptions"
    return file.written("UNIDIRECTIONAL_SEQUENCE_RNN", inputs, UNITS, options, **fields)


FILES = {
    "lstm": lstm(),
    "lstm_time_major": lstm(major=True),
    "lstm_coupled": lstm(coupled=True),
    "lstm_peephole": lstm(peephole=True),
    "lstm_coupled_peephole": lstm(coupled=True, peephole=True),
    "lstm_projected": lstm(projected=2),
    "lstm_clipped": lstm(projected=2, CellClip=0.5, ProjClip=0.25),
    "rnn": rnn(),
    "rnn_time_major": rnn(major=True),
    "rnn_relu": rnn(FusedActivationFunction=RELU),
}


def test_every_operator_is_here():
    assert set(recurrent.OPERATORS) == set().union(*map(operators_of, FILES.values()))


@pytest.mark.parametrize("name", FILES)
def test_a_recurrent_operator_computes_what_litert_computes(name, tmp_path):
    (tmp_path / "m.tflite").write_bytes(FILES[name])
    graph = load(tmp_path / "m.tflite")
    assert graph.notes == [recurrent.NOTE]
    assert_same_as_litert(graph, FILES[name], random_feeds(graph, batch=1))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (lstm(norms=True), "layer norms of its gates"),
        (lstm(DiagonalRecurrentTensors=True), "diagonal weights"),
        (rnn(steps=2000), "2000 steps; 1024 at most"),
    ],
)
def test_what_is_not_read_is_refused_by_name(data, reason, tmp_path):
    (tmp_path / "m.tflite").write_bytes(data)
    with pytest.raises(UnsupportedError, match=f"y: .*{reason}"):
        load(tmp_path / "m.tflite")


@pytest.mark.parametrize("layer", [keras.layers.LSTM, keras.layers.GRU])
def test_a_layer_of_keras_is_quantized(layer, tmp_path):
    """The converter writes an LSTM as one operator, and a GRU as a loop."""
    keras.utils.set_random_seed(0)
    x = keras.layers.Input((STEPS, WIDTH), batch_size=1)
    model = keras.Model(x, keras.layers.Dense(2)(layer(UNITS)(x)))
    data = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    path = tmp_path / "m.tflite"
    path.write_bytes(data)
    graph = load(path)
    assert_same_as_litert(graph, data, random_feeds(graph, batch=1))
    samples = np.random.default_rng(0).normal(size=(8, STEPS, WIDTH)).astype("f4")
    made = qgraph.quantize(path, samples, effort="plain")
    assert not load_network(made.save(tmp_path / "out")).program.has_islands
