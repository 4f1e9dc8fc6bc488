"""LSTM, GRU and RNN of ONNX are written out step by step, with the values of ONNX Runtime."""

import numpy as np
import onnx
import pytest
from onnx import helper

from qgraph import quantize
from qgraph.errors import GraphError, UnsupportedError
from qgraph.interpret import evaluate
from qgraph.train.state import constants_of
from qgraph.verification.verify import verify
from tests.helpers.forms import ANY_PROFILE, OWN_PROFILES
from tests.helpers.onnx_graphs import assert_like_runtime, f, imported, model_of, one_op

STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 5, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OUTPUTS = {"LSTM": ("y", "h", "c"), "GRU": ("y", "h"), "RNN": ("y", "h")}
BOTH = {"direction": "bidirectional"}
LENGTHS = np.full(BATCH, STEPS, np.int32)


def layer(op, *more, batch=BATCH, weights=0.5, outputs=None, **attrs):
    """A model of one layer; `more` follows the biases: lengths and first states."""
    rows, count = GATES[op] * HIDDEN, 1 + (attrs.get("direction") == "bidirectional")
    x = f(STEPS, BATCH, FEATURES)
    if attrs.get("layout"):
        x = x.transpose(1, 0, 2)
    constants = [
        weights * f(count, rows, FEATURES),
        weights * f(count, rows, HIDDEN),
        f(count, 2 * rows),
    ]
    attrs = {"hidden_size": HIDDEN} | attrs
    inputs = [d if d != BATCH else batch for d in x.shape]
    return one_op(op, x, *constants, *more, outputs=outputs or OUTPUTS[op], inputs=inputs, **attrs)


def state(count=1):
    return f(count, BATCH, HIDDEN)


def assert_equal(model):
    shape = [d.dim_value or BATCH for d in model.graph.input[0].type.tensor_type.shape.dim]
    return assert_like_runtime(
        model, {"x": np.random.default_rng(1).normal(size=shape).astype("f")}
    )


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"direction": "reverse"},
        BOTH,
        {"batch": "N"},
        BOTH | {"batch": "N"},
        {"clip": 0.4},
        {"clip": 0.4} | BOTH,
    ],
    ids=str,
)
def test_a_layer_is_equal(op, options) -> None:
    assert_equal(layer(op, **options))


CASES = {
    "lengths": lambda: layer("LSTM", LENGTHS),
    "states": lambda: layer("LSTM", None, state(), state()),
    "hidden state": lambda: layer("LSTM", None, state()),
    "cell state": lambda: layer("LSTM", None, None, state()),
    "zeros": lambda: layer("LSTM", None, 0 * state(), 0 * state()),
    "one state for all": lambda: layer(
        "LSTM", None, *[np.repeat(state()[:, :1], BATCH, 1) for _ in "hc"]
    ),
    "states of two directions": lambda: layer("LSTM", None, state(2), state(2), **BOTH),
    "peepholes": lambda: layer("LSTM", None, None, None, f(1, 3 * HIDDEN)),
    "peepholes and states": lambda: layer("LSTM", None, state(), state(), f(1, 3 * HIDDEN)),
    "peepholes both ways": lambda: layer("LSTM", None, None, None, f(2, 3 * HIDDEN), **BOTH),
    "peepholes and a limit": lambda: layer(
        "LSTM", None, state(), state(), f(1, 3 * HIDDEN), clip=0.5
    ),
    "coupled gates": lambda: layer("LSTM", None, state(), state(), input_forget=1),
    "coupled gates and peepholes": lambda: layer(
        "LSTM", None, state(), state(), f(1, 3 * HIDDEN), input_forget=1
    ),
    "GRU, reset later": lambda: layer("GRU", linear_before_reset=1),
    "GRU, reset later, state": lambda: layer("GRU", None, state(), linear_before_reset=1),
    "GRU, reset later, both ways": lambda: layer("GRU", linear_before_reset=1, **BOTH),
    "GRU, state": lambda: layer("GRU", None, state()),
    "RNN, state": lambda: layer("RNN", LENGTHS, state(2), **BOTH),
    "LSTM functions": lambda: layer("LSTM", activations=["HardSigmoid", "Relu", "Softsign"]),
    "GRU functions": lambda: layer(
        "GRU",
        activations=["HardSigmoid", "ScaledTanh", "Sigmoid", "LeakyRelu"],
        activation_alpha=[0.3, 1.5, 0.25],
        activation_beta=[0.4, 0.75],
        **BOTH,
    ),
    "RNN functions": lambda: layer("RNN", activations=["Affine", "Elu"],
        activation_alpha=[0.6, 0.5], activation_beta=[0.25], **BOTH),
    "Softplus": lambda: layer("RNN", activations=["Softplus"]),
    "names in lower case": lambda: layer("LSTM", activations=["sigmoid", "tanh", "relu"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_option_is_equal(case) -> None:
    assert_equal(CASES[case]())


@pytest.mark.parametrize("op", GATES)
def test_samples_may_come_first(op) -> None:
    """ONNX Runtime lacks this layout: the same layer in the other one is the reference."""
    model = layer(op, None, state(2), **BOTH)
    x = f(STEPS, BATCH, FEATURES)
    wanted = evaluate(imported(model), {"x": x})
    found = evaluate(imported(model_of_samples_first(model)), {"x": x.transpose(1, 0, 2)})
    np.testing.assert_allclose(found["y"], wanted["y"].transpose(2, 0, 1, 3), atol=1e-6)
    np.testing.assert_allclose(found["h"], wanted["h"].transpose(1, 0, 2), atol=1e-6)


def model_of_samples_first(model):
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    changed.graph.node[0].attribute.append(helper.make_attribute("layout", 1))
    dims = changed.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_value, dims[1].dim_value = dims[1].dim_value, dims[0].dim_value
    for constant in changed.graph.initializer:
        if len(constant.dims) == 3 and constant.dims[1] == BATCH:
            array = onnx.numpy_helper.to_array(constant).transpose(1, 0, 2)
            constant.CopyFrom(
                onnx.numpy_helper.from_array(np.ascontiguousarray(array), constant.name)
            )
    return changed


def test_lengths_may_be_repeated_for_an_open_batch() -> None:
    """tf2onnx writes one length, tiled by the batch of the input."""
    model = layer("LSTM", batch="N")
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=1, end=2),
        helper.make_node("Expand", ["length", "shape"], ["lengths"]),
    ]
    lstm = model.graph.node[0]
    lstm.input.append("lengths")
    del model.graph.node[:]
    model.graph.node.extend([*nodes, lstm])
    length = onnx.numpy_helper.from_array(np.array([STEPS], np.int32), "length")
    model.graph.initializer.append(length)
    assert_equal(model)


def test_weights_of_a_layer_are_one_constant_for_all_steps() -> None:
    graph = imported(layer("LSTM", batch="N"))
    shapes = [n.attrs["value"].shape for n in graph.nodes.values() if n.op == "const"]
    assert sorted(s for s in shapes if len(s) > 1) == [(5, 6), (5, 18), (6, 6), (6, 18)]


REFUSED = {
    "unknown steps": (
        lambda: layer_with_input(["T", "N", FEATURES]),
        r"number of steps of this `LSTM`, axis 0 of `x`, is unknown",
        "--input-shape x=16,16,5",
    ),
    "short sequences": (
        lambda: layer("LSTM", np.array([4, 3, 2], np.int32)),
        r"lengths of this `LSTM` are \[2, 3, 4\] of 4 steps",
        "without sequence lengths",
    ),
    "computed lengths": (
        lambda: of_inputs("lengths"),
        "lengths of this `LSTM` are computed",
        "without sequence lengths",
    ),
    "computed weights": (
        lambda: of_inputs("w"),
        "the weights of this `LSTM` are not constant",
        "as initializers",
    ),
    "an unknown activation": (
        lambda: layer("RNN", activations=["ThresholdedRelu"]),
        "activation `ThresholdedRelu` of this `RNN`",
        "HardSigmoid",
    ),
    "too many steps": (
        lambda: layer_with_input([5000, 1, FEATURES]),
        "5000 steps; at most 1024",
        "--input-shape",
    ),
}


def layer_with_input(shape):
    model = layer("LSTM")
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, shape))
    return model


def of_inputs(what):
    """A layer whose lengths or weights are inputs of the network."""
    model = layer("LSTM", LENGTHS if what == "lengths" else None)
    name = "c3" if what == "lengths" else "c0"
    constant = next(i for i in model.graph.initializer if i.name == name)
    value = helper.make_tensor_value_info(name, constant.data_type, [*constant.dims])
    model.graph.initializer.remove(constant)
    model.graph.input.append(value)
    return model


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written_out_is_refused(case) -> None:
    make, reason, advice = REFUSED[case]
    with pytest.raises(UnsupportedError, match=rf"^y: .*{reason}") as refused:
        imported(make())
    assert advice in str(refused.value.hint)


def test_the_advice_on_unknown_steps_helps() -> None:
    model = layer_with_input(["T", "N", FEATURES])
    graph = imported(model, input_shapes={"x": (STEPS, None, FEATURES)})
    assert graph.types["h"].shape == (1, None, HIDDEN)


@pytest.mark.parametrize(
    "damage",
    [
        {"direction": "sideways"},
        {"hidden_size": 5},
        {"activations": ["Tanh"]},
        {"clip": "much"},
        {"layout": 2},
    ],
    ids=str,
)
def test_a_damaged_layer_is_an_error(damage) -> None:
    with pytest.raises(GraphError, match=r"^y: "):
        imported(layer("LSTM", **damage))


# -- quantized -------------------------------------------------------------------------------------


def classifier(op, steps, forget=0.0, **attrs):
    """A layer on samples of `steps` rows, and a dense layer on its last state."""
    count = 1 + (attrs.get("direction") == "bidirectional")
    rows = GATES[op] * HIDDEN
    constants = {
        "w": f(count, rows, FEATURES) / FEATURES**0.5,
        "r": f(count, rows, HIDDEN) / HIDDEN**0.5,
        "b": f(count, 2 * rows) / 4,
        "dense": f(count * HIDDEN, 3),
    }
    constants["b"][:, 2 * HIDDEN : 3 * HIDDEN] += np.float32(forget)
    nodes = [
        helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        helper.make_node(op, ["steps", "w", "r", "b"], ["", "h"], hidden_size=HIDDEN, **attrs),
        helper.make_node("Transpose", ["h"], ["samples"], perm=[1, 0, 2]),
        helper.make_node("Flatten", ["samples"], ["flat"]),
        helper.make_node("MatMul", ["flat", "dense"], ["y"]),
    ]
    return model_of(nodes, {"x": ["N", steps, FEATURES]}, ["y"], constants)


@pytest.mark.parametrize("op", GATES)
def test_one_step_from_a_constant_state_is_noted(op) -> None:
    (note,) = imported(classifier(op, 1)).notes
    assert "keeps nothing between calls" in note
    assert not imported(classifier(op, 2)).notes


def quantized(model, folder, steps, **options):
    onnx.save(model, folder / "model.onnx")
    x = np.random.default_rng(0).normal(size=(48, steps, FEATURES)).astype(np.float32)
    return quantize(folder / "model.onnx", {"x": x}, **({"effort": "plain"} | options))


@pytest.mark.parametrize(
    ("op", "attrs"),
    [("LSTM", {}), ("LSTM", BOTH), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("RNN", {})],
    ids=str,
)
def test_a_network_has_integers_only(tmp_path, op, attrs) -> None:
    made = quantized(classifier(op, 6, **attrs), tmp_path, 6)
    assert not made.trace.refusals
    assert made.facts.agreement.sqnr > 25
    found = verify(made.save(tmp_path / "out"), forms=["engine", "onnx-integer"])
    assert found.equal and not found.refused


@pytest.mark.slow
@pytest.mark.parametrize("op", GATES)
def test_every_form_is_equal(tmp_path, op) -> None:
    found = verify(quantized(classifier(op, 3), tmp_path, 3).save(tmp_path / "out"))
    assert found.equal and found.refused.keys() <= {*OWN_PROFILES}
    assert set(found.compared.tallies) == set(ANY_PROFILE)


def test_a_state_does_not_drift_in_64_steps(tmp_path) -> None:
    model = classifier("LSTM", 64, forget=4)
    wide, narrow = (
        quantized(model, tmp_path, 64, profile=profile).facts.agreement.sqnr
        for profile in ("graffitist-int8", "int32-bias")
    )
    assert wide > max(narrow + 2, 24)


def test_retraining_has_one_variable_for_each_weight(tmp_path) -> None:
    made = quantized(classifier("LSTM", 4), tmp_path, 4, mode="retrain")
    weights = [v for v in constants_of(made.graph).values() if len(v.shape) == 2]
    assert len(weights) == 5
