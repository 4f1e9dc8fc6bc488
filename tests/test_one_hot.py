"""One-hot vectors of indices that are inputs, and rows along other axes: tables in integers."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from onnx import helper

from qgraph import load, quantize
from qgraph.errors import CalibrationError
from qgraph.interpret import evaluate
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Role
from qgraph.program.lower import lower
from qgraph.train.state import trained_constants
from qgraph.verification.verify import verify
from tests.helpers.onnx_graphs import imported, model_of

layers = keras.layers
LENGTH, KINDS = 3, 7
FORMS = ("tensorflow", "engine", "onnx-integer", "onnx-qdq")


def kinds(dtype="int32", count: int = 24) -> dict[str, np.ndarray]:
    """Indices, one of which has no place in a vector."""
    found = np.random.default_rng(0).integers(0, KINDS, (count, LENGTH)).astype(dtype)
    found[0] = KINDS + 2
    return {"kinds": found}


def network(vectors, dtype="int32") -> keras.Model:
    keras.utils.set_random_seed(0)
    x = layers.Input((LENGTH,), dtype=dtype, name="kinds")
    return keras.Model(x, layers.Dense(3)(layers.Flatten()(vectors(x))))


def compared(x):
    return tf.cast(tf.equal(x, tf.range(KINDS, dtype=x.dtype)), "float32")


VECTORS = {
    "last axis": lambda x: tf.one_hot(x, KINDS),
    "first axis": lambda x: tf.one_hot(x, KINDS, axis=1),
    "other values": lambda x: tf.one_hot(x, KINDS, on_value=0.5, off_value=-1.0),
    "compared": lambda x: compared(x[:, :, None]),
    "moved": lambda x: tf.one_hot(tf.reverse(x, [1])[:, 1:], KINDS),
}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("vectors", VECTORS)
def test_vectors_are_rows_of_a_table(tmp_path, vectors, dtype) -> None:
    model, data = network(VECTORS[vectors], dtype), kinds(dtype)
    (found,) = evaluate(load(model), data).values()
    np.testing.assert_allclose(found, model(data["kinds"]), atol=1e-6)
    made = quantize(model, data, effort="plain")
    assert not [r for r in made.trace.refusals if r.reason.startswith("stays float")]
    assert [(e.spec.bits, e.source) for e in lower(made.graph).entries] == [(8, "kinds/index")]
    found = verify(made.save(tmp_path / "out"), forms=FORMS)
    assert found.equal and not found.refused


def test_codes_of_vectors_are_exact_and_not_trained() -> None:
    made, data = quantize(network(VECTORS["last axis"]), kinds(), effort="plain"), kinds()
    (node,) = (n for n in made.graph.nodes.values() if n.op == "embedding")
    codes = made.reference().run(data, {node.name})[node.name]
    vectors = codes.codes.reshape(-1, LENGTH, KINDS) * 2.0**-codes.exponent
    np.testing.assert_array_equal(vectors, tf.one_hot(data["kinds"], KINDS))
    table = made.graph.nodes[node.inputs[0]]
    assert spec_of(table).role is Role.CONSTANT
    assert table.inputs[0] not in trained_constants(made.graph)


def test_a_negative_index_is_refused() -> None:
    data = kinds()
    data["kinds"][1, 1] = -1
    with pytest.raises(CalibrationError, match="an index of -1 in the samples"):
        quantize(network(VECTORS["last axis"]), data, effort="plain")


def onnx_network(*nodes, **constants):
    number = helper.np_dtype_to_tensor_dtype(np.dtype("int64"))
    given = helper.make_tensor_value_info("kinds", number, [None, LENGTH])
    rng = np.random.default_rng(0)
    w = rng.integers(-9, 9, (constants.pop("width"), 2)).astype(np.float32)
    nodes = [helper.make_node(kind, *ends, **attrs) for kind, *ends, attrs in nodes]
    tail = helper.make_node("MatMul", ["flat", "w"], ["y"])
    flat = helper.make_node("Flatten", ["h"], ["flat"])
    return model_of([*nodes, flat, tail], {"kinds": given}, constants={"w": w, **constants}), w


TABLE = np.random.default_rng(1).integers(-9, 9, (4, KINDS)).astype(np.float32)


@pytest.mark.parametrize(
    ("nodes", "constants", "expected"),
    [
        pytest.param(
            [("OneHot", ["kinds", "depth", "values"], ["h"], {"axis": -1})],
            {"depth": np.int64(KINDS), "values": np.float32([0, 1])},
            lambda x: np.eye(KINDS)[x],
            id="one-hot",
        ),
        pytest.param(
            [
                ("OneHot", ["kinds", "depth", "values"], ["whole"], {"axis": -1}),
                ("Cast", ["whole"], ["h"], {"to": 1}),
            ],
            {"depth": np.int64(KINDS), "values": np.int64([-1, 3])},
            lambda x: 4 * np.eye(KINDS)[x] - 1,
            id="cast of integers",
        ),
        pytest.param(
            [("Gather", ["table", "kinds"], ["h"], {"axis": 1})],
            {"table": TABLE},
            lambda x: TABLE[:, x].transpose(1, 0, 2),
            id="columns",
        ),
        pytest.param(
            [
                ("Unsqueeze", ["kinds", "last"], ["places"], {}),
                ("GatherND", ["rows", "places"], ["h"], {}),
            ],
            {"rows": TABLE.T.copy(), "last": np.int64([2])},
            lambda x: TABLE.T[x],
            id="rows",
        ),
    ],
)
def test_files_of_onnx(tmp_path, nodes, constants, expected) -> None:
    data = kinds("int64")
    data["kinds"] %= KINDS
    wanted = expected(data["kinds"])
    if nodes[0][0] == "Gather":  # the batch is the second axis
        turned = ("Transpose", ["columns"], ["h"], {"perm": (1, 0, 2)})
        nodes = [("Gather", ["table", "kinds"], ["columns"], {"axis": 1}), turned]
    flat = wanted.reshape(len(wanted), -1)
    model, w = onnx_network(*nodes, width=flat.shape[1], **constants)
    graph = imported(model)
    assert "opaque" not in {node.op for node in graph.nodes.values()}
    (found,) = evaluate(graph, data).values()
    np.testing.assert_array_equal(found, flat @ w)
    made = quantize(graph, data, effort="plain")
    assert [(e.spec.bits, e.source) for e in lower(made.graph).entries] == [(8, "kinds/index")]
    found = verify(made.save(tmp_path / "out"), forms=FORMS)
    assert found.equal and not found.refused


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_gather_along_any_axis(axis) -> None:
    table = np.random.default_rng(0).integers(-9, 9, (KINDS,) * 3).astype(np.float32)
    x = layers.Input((LENGTH,), dtype="int32", name="kinds")
    model = keras.Model(x, tf.gather(tf.constant(table), x, axis=axis))
    graph, data = load(model), kinds()
    data["kinds"] %= KINDS
    assert "embedding" in {node.op for node in graph.nodes.values()}
    (found,) = evaluate(graph, data).values()
    np.testing.assert_array_equal(found, np.take(table, data["kinds"], axis))
