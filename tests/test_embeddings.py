"""Rows of tables by indices that are inputs: from every format, in integers, in every form."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from qgraph import load, quantize
from qgraph.errors import CalibrationError, GraphError
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Role
from qgraph.numerics import quantize as to_codes
from qgraph.passes import PassManager
from qgraph.program.lower import lower
from qgraph.quant.calibrate import calibrate
from qgraph.quant.without_data.generated import index_ranges
from qgraph.recipes import static
from qgraph.stored import load_network
from qgraph.train.model import TrainingGraph
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.forms import assert_forms
from tests.helpers.onnx_graphs import imported, model_of
from tests.helpers.quantized import INT8, INT32_BIAS
from tests.train.test_training_graph import assert_is_inference

layers = keras.layers
LENGTH = 6
REFUSE = {  # forms that have no such indices, by their widths in bits
    8: {"tflite", "onnx-xint8"},
    16: {"tflite", "onnx-xint8"},
    24: {"tflite", "onnx-xint8", "onnx-qdq"},
}


def words(rows: int, count: int = 32, seed: int = 0) -> dict[str, np.ndarray]:
    """Indices of rows, the first and the last among them."""
    found = np.random.default_rng(seed).integers(0, rows, (count, LENGTH), np.int32)
    found[0, :2] = 0, rows - 1
    return {"words": found}


def keras_network(rows: int) -> keras.Model:
    keras.utils.set_random_seed(0)
    x = layers.Input((LENGTH,), dtype="int32", name="words")
    h = layers.Conv1D(4, 3, activation="relu")(layers.Embedding(rows, 5)(x))
    return keras.Model(x, layers.Dense(3)(layers.Flatten()(h)))


@needs_compiler
@pytest.mark.parametrize(("rows", "bits"), [(50, 8), (256, 8), (257, 16), (70_000, 24)])
def test_they_are_integers_and_equal_in_every_form(tmp_path, rows, bits) -> None:
    model, data = keras_network(rows), words(rows)
    made = quantize(model, data, effort="plain")
    graph = load(model)
    (node,) = (n for n in graph.nodes.values() if n.op == "embedding")
    table = model.layers[1].get_weights()[0]
    np.testing.assert_array_equal(
        *evaluate(graph, data, [node.name]).values(), table[data["words"]]
    )
    (entry,) = lower(made.graph).entries
    assert (entry.spec.bits, entry.spec.signed, entry.spec.exponent) == (bits, False, 0)
    assert not [r for r in made.trace.refusals if r.reason.startswith("stays float")]
    assert made.facts.agreement.sqnr > 25
    found = verify(made.save(tmp_path / "out"))
    assert found.equal and REFUSE[bits] <= found.refused.keys() <= REFUSE[bits] | {"tosa"}


@needs_compiler
def test_words_places_and_kinds_are_added_up(tmp_path) -> None:
    """As in transformers of text: three tables, one of them a constant, and a layer norm."""
    keras.utils.set_random_seed(0)
    x = layers.Input((LENGTH,), dtype="int32", name="words")
    kind = layers.Input((LENGTH,), dtype="int32", name="kinds")
    places = tf.constant(np.random.default_rng(1).normal(0, 0.02, (1, LENGTH, 8)), tf.float32)
    h = layers.Embedding(300, 8)(x) + layers.Embedding(2, 8)(kind) + places
    h = layers.LayerNormalization()(h)
    share = tf.nn.softmax(tf.matmul(layers.Dense(8)(h), layers.Dense(8)(h), transpose_b=True))
    h = layers.LayerNormalization()(h + tf.matmul(share, layers.Dense(8)(h)))
    model = keras.Model([x, kind], layers.Dense(3)(h[:, 0]))
    data = {**words(300, 64), "kinds": words(2, 64, seed=1)["words"]}
    made = quantize(model, data, effort="fast")
    assert not [r for r in made.trace.refusals if r.reason.startswith("stays float")]
    assert made.facts.agreement.sqnr > 20
    compared = assert_forms(load_network(made.save(tmp_path / "out")))
    assert compared.keys() >= {"engine", "c", "tensorflow", "onnx-integer", "onnx-qdq", "qonnx"}


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_files_of_onnx_give_the_same_network(kind) -> None:
    rng = np.random.default_rng(0)  # of whole numbers, whose products are exact in float32
    table, w = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((9, 4), (4, 3)))
    nodes = [
        helper.make_node("Gather", ["table", "words"], ["rows"], axis=0),
        helper.make_node("MatMul", ["rows", "w"], ["y"]),
    ]
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    given_words = helper.make_tensor_value_info("words", number, [None, LENGTH])
    model = model_of(nodes, {"words": given_words}, constants={"table": table, "w": w})
    data = {"words": words(9)["words"].astype(kind)}
    graph = imported(model)
    assert "opaque" not in {node.op for node in graph.nodes.values()}
    (found,) = evaluate(graph, data).values()
    np.testing.assert_array_equal(found, table[data["words"]] @ w)
    made = quantize(graph, data, effort="plain")
    assert [e.spec.bits for e in lower(made.graph).entries] == [8]


def test_arithmetic_on_indices_is_left_to_the_host(tmp_path) -> None:
    keras.utils.set_random_seed(0)
    x = layers.Input((LENGTH,), dtype="int32", name="words")
    h = layers.Embedding(50, 5)(tf.maximum(tf.minimum(x + 1, 49), 0))
    model, data = keras.Model(x, layers.Dense(3)(layers.Flatten()(h))), words(50)
    made = quantize(model, data, effort="plain")
    said = {r.reason for r in made.trace.refusals if "stays float" in r.reason}
    assert said == {"stays float: it computes no floats"}
    assert made.facts.agreement.sqnr > 25
    found = verify(made.save(tmp_path / "out"), forms=["tensorflow", "onnx-qdq", "onnx-integer"])
    assert found.equal and not found.refused


def test_an_index_without_a_row_is_an_error() -> None:
    expected = {50: (GraphError, "for 50 rows"), -1: (CalibrationError, "an index of -1")}
    for wrong, (kind, message) in expected.items():
        data = words(50)
        data["words"][3, 3] = wrong
        with pytest.raises(kind, match=message):
            quantize(keras_network(50), data, effort="plain")


def test_without_data_indices_are_those_of_the_table() -> None:
    keras.utils.set_random_seed(0)
    x = layers.Input((LENGTH,), dtype="int32", name="words")
    model = keras.Model(x, layers.Dense(3)(layers.Flatten()(layers.Embedding(50, 5)(x))))
    graph = load(model)
    assert index_ranges(graph) == {"words": (0.0, 49.0)}
    made = quantize(graph)
    assert "embedding" in {node.op for node in made.graph.nodes.values()}


# -- laws -----------------------------------------------------------------------------------------


def graph_of(rows: int, row: tuple[int, ...], shape: tuple[int, ...], seed: int) -> Graph:
    """Indices [batch, *shape] of a table [rows, *row]; the rows, flat, are the input of a layer."""
    rng, graph = np.random.default_rng(seed), Graph("rows")
    table = graph.const(rng.normal(size=(rows, *row)).astype(np.float32), "table")
    x = graph.input("x", "float32", (None, *shape))
    size = int(np.prod((*shape, *row)))
    flat = graph.add("reshape", graph.add("embedding", table, x), attrs={"shape": (-1, size)})
    w = graph.const(rng.normal(size=(size, 2)).astype(np.float32), "w")
    graph.outputs["y"] = graph.add("matmul", flat, w)
    return graph


@given(
    st.integers(2, 300),
    st.lists(st.integers(1, 3), max_size=2).map(tuple),
    st.lists(st.integers(1, 3), max_size=2).map(tuple),
    st.integers(0, 99),
)
def test_rows_of_codes_are_codes_of_rows(rows, row, shape, seed) -> None:
    """The integer rows are the quantized rows of the float table, in every form."""
    graph = graph_of(rows, row, shape, seed)
    table = graph.constant("table")
    x = np.random.default_rng(seed).integers(0, rows, (8, *shape)).astype(np.float32)
    x[0] = rows - 1  # not all zeros
    made = quantize(graph, {"x": x}, effort="plain")
    node = next(n for n in made.graph.nodes.values() if n.op == "embedding")
    spec = spec_of(made.graph.nodes[node.inputs[0]])
    found = made.reference().run({"x": x}, {node.name})[node.name]
    assert spec.role is Role.WEIGHT
    np.testing.assert_array_equal(found.codes, to_codes(table[x.astype(int)], spec).codes)


# -- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [INT8, INT32_BIAS], ids=["int8", "int32-bias"])
def test_tables_learn_and_training_computes_what_inference_does(profile) -> None:
    graph = graph_of(50, (4,), (LENGTH,), 0)
    feeds = {"x": words(50)["words"].astype(np.float32)}
    PassManager(static(profile)).run(graph)
    calibrate(graph, feeds)
    training, rng = TrainingGraph(graph), np.random.default_rng(0)
    assert_is_inference(training, feeds)
    table = training.weights["table"]
    inputs = {name: tf.constant(x) for name, x in feeds.items()}
    with tf.GradientTape() as tape:
        values, _ = training.values(inputs)
        loss = tf.reduce_sum(tf.square(training.outputs(values)["y"]))
    gradient = tf.convert_to_tensor(tape.gradient(loss, table)).numpy()
    used = np.isin(np.arange(50), feeds["x"])
    assert np.array_equal(gradient.any(1), used) and not used.all()
    for variable in (*training.kernels, *training.thresholds):
        spread = np.abs(variable.numpy()).max() / 10
        variable.assign_add((rng.normal(size=variable.shape) * spread).astype(np.float32))
    assert_is_inference(training, feeds)
    node = next(n for n in training.finalized().nodes.values() if n.op == "embedding")
    assert spec_of(training.finalized().nodes[node.inputs[1]]).exponent == 0
