"""Recurrent layers of Keras after `Embedding(mask_zero=True)`: read, in integers, in every form."""

from dataclasses import replace

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras2

from qgraph import load, quantize
from qgraph.errors import CalibrationError
from qgraph.interpret import evaluate
from qgraph.ir.reading import spec_of
from qgraph.passes import PassManager
from qgraph.program.lower import lower
from qgraph.quant.profile import Bits
from qgraph.quant.without_data.generated import index_ranges
from qgraph.recipes import FLOAT
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.moved_variables import assert_trains
from tests.helpers.quantized import INT8

STEPS, ROWS, UNITS = 3, 20, 3
LIBRARIES = {"keras2": keras2, "keras3": keras3}
LAYERS = {
    "lstm": lambda L: L.LSTM(UNITS),
    "lstm of sequences": lambda L: L.LSTM(UNITS, return_sequences=True),
    "gru": lambda L: L.GRU(UNITS, reset_after=False),
    "simple": lambda L: L.SimpleRNN(UNITS),
    "backwards": lambda L: L.LSTM(UNITS, go_backwards=True),
    "both ways": lambda L: L.Bidirectional(L.GRU(UNITS, return_sequences=True)),
    "unrolled": lambda L: L.Bidirectional(L.SimpleRNN(UNITS, unroll=True, return_sequences=True)),
}
FAST = ("tensorflow", "engine", "onnx-integer")
ALL = (*FAST, "onnx-qdq", "onnx-qoperator", "qonnx", "c", "vectors")


@pytest.fixture(params=LIBRARIES)
def keras(request):
    return LIBRARIES[request.param]


def words(count: int = 32) -> dict[str, np.ndarray]:
    """Sequences with zeros in the middle, at the end, at the start, and only zeros."""
    rng = np.random.default_rng(0)
    found = rng.integers(1, ROWS, (count, STEPS), np.int32)
    found[rng.random(found.shape) < 0.2] = 0
    for row, length in zip(found[: count // 2], rng.integers(0, STEPS, count // 2), strict=True):
        row[length:] = 0
    found[0], found[1, :2], found[2] = 0, 0, (5, 0, 7)
    return {"words": found}


def network(keras, *made):
    """A model of layers on embedded words, behind which a dense layer follows."""
    keras.utils.set_random_seed(0)
    L = keras.layers
    x = L.Input((STEPS,), dtype="int32", name="words")
    start = keras.initializers.RandomUniform(-1, 1)
    h = L.Embedding(ROWS, 4, mask_zero=True, embeddings_initializer=start)(x)
    for make in made:
        h = make(L)(h)
    return keras.Model(x, L.Dense(2, bias_initializer="ones")(L.Flatten()(h)))


def codes(made, data, *names):
    found = made.reference().run(data, set(names))
    return [found[name].codes for name in names]


def stays_float(made) -> list[str]:
    return [r.node for r in made.trace.refusals if r.reason.startswith("stays float")]


@pytest.mark.filterwarnings("ignore:.*mask:UserWarning")
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_is_read_and_becomes_integer(tmp_path, keras, layer) -> None:
    model, data = network(keras, LAYERS[layer]), words()
    (found,) = evaluate(load(model), data).values()
    np.testing.assert_allclose(found, model(data["words"]), atol=1e-6)
    made = quantize(model, data, effort="plain")
    program = lower(made.graph)
    assert not made.facts.warnings and not stays_float(made)
    assert program.batch_free or layer == "unrolled"
    assert [(e.spec.bits, e.source) for e in program.entries] == [(8, "words/index")]
    assert made.facts.agreement.sqnr > 22
    found = verify(made.save(tmp_path / "out"), forms=FAST)
    assert found.equal and not found.refused


@needs_compiler
@pytest.mark.parametrize("layer", ["simple", "lstm"])
def test_every_form_computes_the_same(tmp_path, layer) -> None:
    made = quantize(network(keras2, LAYERS[layer]), words(), effort="plain")
    found = verify(made.save(tmp_path / "out"), forms=ALL)
    assert found.equal and not found.refused


def test_stacked_layers(keras) -> None:
    first, last = (lambda L: L.LSTM(UNITS, return_sequences=True)), (lambda L: L.GRU(UNITS))
    made = quantize(network(keras, first, last), words(), effort="plain")
    assert not stays_float(made) and made.facts.agreement.sqnr > 20


def test_codes_stay_at_masked_steps(keras) -> None:
    """The output of a masked step has the very codes of the step before; at first, zeros."""
    L, data = keras.layers, words()
    keras.utils.set_random_seed(0)
    x = L.Input((STEPS,), dtype="int32", name="words")
    h = L.Embedding(ROWS, 4, mask_zero=True)(x)
    model = keras.Model(x, L.LSTM(UNITS, return_sequences=True)(h))
    made = quantize(model, data, effort="plain")
    (found,) = codes(made, data, *made.graph.outputs.values())
    before = np.concatenate([np.zeros_like(found[:, :1]), found[:, :-1]], 1)
    masked = data["words"] == 0
    np.testing.assert_array_equal(found[masked], before[masked])
    assert (found[~masked] != before[~masked]).mean() > 0.5
    selects = [n for n in made.graph.nodes.values() if n.op == "quantize" and "Select" in n.name]
    groups = [(spec_of(node).bits, spec_of(node).group) for node in selects]
    assert len(selects) > 2 and {bits for bits, _ in groups} == {8, 16}
    assert len({*groups}) == 2  # of the output and of the cell state, at all steps


def test_zeros_at_masked_steps() -> None:
    def layer(L):
        return L.LSTM(UNITS, return_sequences=True, zero_output_for_mask=True)

    L, data = keras2.layers, words()
    x = L.Input((STEPS,), dtype="int32", name="words")
    model = keras2.Model(x, layer(L)(L.Embedding(ROWS, 4, mask_zero=True)(x)))
    made = quantize(model, data, effort="plain")
    (found,) = codes(made, data, *made.graph.outputs.values())
    assert not found[data["words"] == 0].any() and found[data["words"] > 0].any()


def test_many_bits_are_nearly_exact() -> None:
    bits = Bits(weight=16, weight_ends=16, activation=16, internal=24, bias=24)
    made = quantize(
        network(keras2, LAYERS["lstm"]), words(), effort="plain", profile=replace(INT8, bits=bits)
    )
    assert made.facts.agreement.sqnr > 60 and not stays_float(made)


@pytest.mark.parametrize("layer", ["lstm", "gru"])
def test_they_train(layer) -> None:
    training = assert_trains(load(network(keras2, LAYERS[layer])), words())
    specs = [spec_of(n) for n in training.finalized().nodes.values() if n.op == "quantize"]
    assert {spec.exponent for spec in specs if spec.role == "index"} == {0}


# -- masks from elsewhere ------------------------------------------------------------------------


def test_masks_that_are_inputs(tmp_path, keras) -> None:
    """The host computes a mask of one bit from other inputs."""
    L, data = keras.layers, words()
    data["kept"] = (data["words"] > 0).astype(np.int32)
    x = L.Input((STEPS,), dtype="int32", name="words")
    mask = L.Input((STEPS,), dtype="int32", name="kept")
    whole = keras3.ops.cast(mask, "bool") if keras is keras3 else tf.cast(mask, tf.bool)
    h = L.GRU(UNITS)(L.Embedding(ROWS, 4)(x), mask=whole)
    made = quantize(keras.Model([x, mask], L.Dense(2)(h)), data, effort="plain")
    assert sorted(e.spec.bits for e in lower(made.graph).entries) == [1, 8]
    found = verify(made.save(tmp_path / "out"), forms=FAST)
    assert found.equal and not found.refused


def test_masks_of_signals(tmp_path, keras) -> None:
    L, rng = keras.layers, np.random.default_rng(0)
    signals = rng.normal(size=(32, STEPS, 2)).astype(np.float32)
    signals[words()["words"] == 0] = 0
    x = L.Input((STEPS, 2), name="x")
    model = keras.Model(x, L.Dense(2)(L.LSTM(UNITS)(L.Masking()(x))))
    made = quantize(model, {"x": signals}, effort="plain")
    assert made.facts.agreement.sqnr > 22
    found = verify(made.save(tmp_path / "out"), forms=FAST)
    assert found.equal and not found.refused


# -- negative indices ----------------------------------------------------------------------------


def test_an_index_that_counts_from_the_end_is_refused() -> None:
    """Keras 3 turns negative indices; codes of indices start at 0."""
    model, data = network(keras3, LAYERS["simple"]), words()
    assert index_ranges(load(model)) == {"words": (0.0, ROWS - 1.0)}
    data["words"][3, 2] = -1
    with pytest.raises(CalibrationError, match=r"an index of -1 in the samples"):
        quantize(model, data, effort="plain")


def test_the_float_network_has_each_select_once() -> None:
    graph = load(network(keras2, LAYERS["lstm"]))
    PassManager(FLOAT).run(graph)
    selects = [node for node in graph.nodes.values() if node.op == "select"]
    assert len(selects) == 2 * STEPS - 1  # of both states; the last cell state is not used
    assert {graph.types[node.inputs[0]].shape for node in selects} == {(None, 1)}
