"""Recurrent layers in `.tflite` files, in each of their spellings."""

from collections.abc import Callable, Mapping

import keras as keras3
import numpy as np
import onnx
import pytest
import tf_keras as keras2
from onnx import helper

pytest.importorskip("tflite", reason="pip install 'qgraph-compiler[tflite]'")
pytest.importorskip("ai_edge_litert", reason="pip install 'qgraph-compiler[tflite]'")
pytest.importorskip("tflite_micro", reason="pip install 'qgraph-compiler[tflite]'")

from qgraph import quantize
from qgraph.backends.tflite.arithmetic import ARITHMETICS
from qgraph.verification.verify import verify
from tests.helpers.onnx_graphs import f, model_of

STEPS, FEATURES, UNITS = 2, 4, 3
PROFILES = [arithmetic.name for arithmetic in ARITHMETICS]
LAYERS: Mapping[str, Callable] = {
    "lstm": lambda L: L.LSTM(UNITS, return_sequences=True),
    "unrolled": lambda L: L.LSTM(UNITS, unroll=True, use_bias=False),
    "both ways": lambda L: L.Bidirectional(L.LSTM(UNITS)),
    "gru": lambda L: L.GRU(UNITS, reset_after=False),
    "of images": lambda L: L.ConvLSTM2D(2, 3, padding="same"),
}
MASKED = {"lstm": LAYERS["lstm"], "gru": LAYERS["gru"], "simple": lambda L: L.SimpleRNN(UNITS)}


def keras_network(keras, layer, *, masked: bool = False, shape=(STEPS, FEATURES)):
    """The network of a layer with random biases, and samples."""
    keras.utils.set_random_seed(0)
    L, rng = keras.layers, np.random.default_rng(0)
    if masked:
        x = L.Input((STEPS,), dtype="int32", name="x")
        table = L.Embedding(20, 4, mask_zero=True, embeddings_initializer="normal")
        h, samples = table(x), rng.integers(0, 5, (32, STEPS), np.int32)
    else:
        x = h = L.Input(shape, name="x")
        samples = rng.normal(size=(32, *shape)).astype(np.float32)
    model = keras.Model(x, L.Dense(2)(L.Flatten()(layer(L)(h))))
    for variable in model.trainable_variables:
        if "bias" in variable.name:
            variable.assign(rng.uniform(-1, 1, variable.shape))
    return model, {"x": samples}


def assert_equal(tmp_path, model, samples: Mapping[str, np.ndarray], profile: str, **options):
    made = quantize(model, samples, effort="plain", profile=profile, **options)
    assert not [r.node for r in made.trace.refusals if r.reason.startswith("stays float")]
    found = verify(made.save(tmp_path / "out"), forms=["tflite"])
    assert found.equal and not found.refused


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("profile", PROFILES)
def test_layers_of_keras(tmp_path, profile, layer) -> None:
    shape = (STEPS, 4, 4, 2) if layer == "of images" else (STEPS, FEATURES)
    assert_equal(tmp_path, *keras_network(keras2, LAYERS[layer], shape=shape), profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_loops_of_keras_3(tmp_path, profile) -> None:
    assert_equal(tmp_path, *keras_network(keras3, LAYERS["lstm"]), profile)


@pytest.mark.filterwarnings("ignore:.*mask:UserWarning")
@pytest.mark.parametrize("layer", MASKED)
@pytest.mark.parametrize("profile", PROFILES)
def test_layers_with_masks(tmp_path, profile, layer) -> None:
    """No step of a choice by a mask needs more bits than what it chooses from."""
    assert_equal(tmp_path, *keras_network(keras2, MASKED[layer], masked=True), profile)


@pytest.mark.parametrize(
    "attributes",
    [{}, {"peephole": True}, {"input_forget": 1}, {"direction": "bidirectional"}],
    ids=str,
)
@pytest.mark.parametrize("profile", PROFILES)
def test_layers_of_onnx(tmp_path, profile, attributes) -> None:
    attributes = dict(attributes)
    ways, rows = 1 + ("direction" in attributes), 4 * UNITS
    constants = {
        "w": f(ways, rows, FEATURES), "r": f(ways, rows, UNITS), "b": f(ways, 2 * rows),
    }  # fmt: skip
    inputs = ["t", "w", "r", "b", "", "", ""]
    if attributes.pop("peephole", False):
        constants["p"] = f(ways, 3 * UNITS)
        inputs.append("p")
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node("LSTM", inputs, ["h"], hidden_size=UNITS, **attributes),
        helper.make_node("Transpose", ["h"], ["y"], perm=[2, 0, 1, 3]),
    ]
    path = tmp_path / "net.onnx"
    onnx.save(model_of(nodes, {"x": [None, STEPS, FEATURES]}, ["y"], constants), path)
    assert_equal(tmp_path, path, {"x": f(32, STEPS, FEATURES)}, profile)


def written_cell(*, shared_product: bool):
    """An LSTM in ONNX ops, whose bias is behind the sum of both products."""
    constants = {
        "w": f(FEATURES, 4 * UNITS), "u": f(UNITS, 4 * UNITS), "b": f(4 * UNITS),
        "h": f(1, UNITS), "c": f(1, UNITS),
        **{f"at{t}": np.array(t, np.int64) for t in range(STEPS)},
    }  # fmt: skip
    nodes = []

    def op(kind: str, *inputs: str, **attributes) -> str:
        made = f"{kind}{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [made], **attributes))
        return made

    h, c, products = "h", "c", op("MatMul", "x", "w") if shared_product else ""
    for t in range(STEPS):
        if shared_product:
            xw = op("Gather", products, f"at{t}", axis=1)
        else:
            xw = op("MatMul", op("Gather", "x", f"at{t}", axis=1), "w")
        sums = op("Add", "b", op("Add", op("MatMul", h, "u"), xw))
        gates = [f"{gate}{t}" for gate in "ifgo"]
        nodes.append(helper.make_node("Split", [sums], gates, axis=1, num_outputs=4))
        i, forget, o = (op("Sigmoid", f"{gate}{t}") for gate in "ifo")
        new = op("Mul", i, op("Tanh", f"g{t}"))
        c = op("Add", op("Mul", forget, c), new)
        h = op("Mul", o, op("Tanh", c))
    return model_of(nodes, {"x": [None, STEPS, FEATURES]}, [h], constants, 18)


@pytest.mark.parametrize("shared", [False, True], ids=["product of a step", "of all steps"])
@pytest.mark.parametrize("profile", PROFILES)
def test_written_out_cells(tmp_path, profile, shared) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(written_cell(shared_product=shared), path)
    assert_equal(tmp_path, path, {"x": f(32, STEPS, FEATURES)}, profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_one_step_with_carried_states(tmp_path, profile) -> None:
    rows = 4 * UNITS
    constants = {"w": f(1, rows, FEATURES), "r": f(1, rows, UNITS), "b": f(1, 2 * rows)}
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b", "", "h", "c"], ["y", "hn", "cn"], hidden_size=UNITS
    )
    shapes = {"x": [1, 1, FEATURES], "h": [1, 1, UNITS], "c": [1, 1, UNITS]}
    path = tmp_path / "net.onnx"
    onnx.save(model_of([node], shapes, ["hn", "cn"], constants), path)
    samples = {"x": f(6, 8, 1, FEATURES)}
    states = {"h": "hn", "c": "cn"}
    assert_equal(tmp_path, path, samples, profile, states=states)
