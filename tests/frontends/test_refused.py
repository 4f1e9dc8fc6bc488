"""Refusals name the user's layer, the reason and what to do, whichever file it came in."""

import re

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from qgraph import load, quantize
from qgraph.errors import UnsupportedError, UsageError
from qgraph.frontends.tf.refused import layer_of
from qgraph.interpret import evaluate
from tests.helpers.cli import run

L = keras.layers


def written(model: keras.Model, folder, kind: str):
    path = folder / ("model.h5" if kind == "h5" else "saved")
    if kind == "h5":
        model.save(path)
    else:
        tf.saved_model.save(model, str(path))
    return path


def recurrent(layer: str, steps: int | None = 5, **options) -> keras.Model:
    keras.utils.set_random_seed(0)
    x = L.Input((steps, 3), name="x")
    return keras.Model(x, L.Dense(2)(getattr(L, layer)(4, name="memory", **options)(x)))


def counting() -> keras.Model:
    """A loop whose number of steps depends on the data."""

    def call(x):
        return tf.while_loop(lambda v: tf.reduce_sum(v) < 9, lambda v: [v + 1], [x])[0]

    x = L.Input((5, 3), name="x")
    return keras.Model(x, L.Lambda(call, name="memory")(x))


def test_a_loop_with_an_unknown_number_of_steps_is_refused(tmp_path) -> None:
    path = written(counting(), tmp_path, "saved")
    reason = r"^\S*memory\S*: the number of steps of this loop is unknown"
    with pytest.raises(UnsupportedError, match=reason) as refused:
        load(path)
    assert "--inputs" in str(refused.value.hint)


@pytest.mark.parametrize("kind", ["h5", "saved"])
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "SimpleRNN"])
def test_a_recurrent_layer_of_unknown_length_is_refused(tmp_path, layer, kind) -> None:
    path = written(recurrent(layer, None), tmp_path, kind)
    reason = r"^\S*memory: the number of time steps is unknown"
    with pytest.raises(UnsupportedError, match=reason) as refused:
        load(path)
    assert "--input-shape x=?,16,40" in str(refused.value.hint)


def test_inspect_and_quantize_say_so_too(tmp_path) -> None:
    path = written(recurrent("LSTM", None), tmp_path, "h5")
    x = np.zeros((4, 5, 3), np.float32)
    np.save(tmp_path / "x.npy", x)
    verbs = (["inspect", path], ["quantize", path, "-c", tmp_path / "x.npy", "-o", tmp_path / "o"])
    for verb in verbs:
        done = run(*verb)
        assert done.code == UnsupportedError.exit_code
        assert "memory: the number of time steps is unknown" in " ".join(done.err.split())


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "SimpleRNN"])
def test_the_advice_helps(tmp_path, layer) -> None:
    model = recurrent(layer, None)
    x = np.random.default_rng(0).normal(size=(16, 5, 3)).astype(np.float32)
    graph = load(written(model, tmp_path, "h5"), input_shapes={"x": (None, 5, 3)})
    (found,) = evaluate(graph, {"x": x}).values()
    np.testing.assert_allclose(found, model(x), atol=1e-6)
    made = quantize(graph, {"x": x}, effort="plain")
    assert made.facts.agreement.sqnr > 20


@pytest.mark.parametrize("kind", ["h5", "saved"])
@pytest.mark.parametrize("images", [True, False], ids=["images", "vectors"])
def test_a_batch_norm_in_training_mode_is_refused(tmp_path, images, kind) -> None:
    x = L.Input((6, 6, 2) if images else (8,), name="x")
    h = L.Conv2D(3, 3)(x) if images else L.Dense(6)(x)
    h = L.BatchNormalization(name="in_training")(h, training=True)
    path = written(keras.Model(x, L.Dense(2)(L.Flatten()(h))), tmp_path, kind)
    with pytest.raises(
        UnsupportedError, match=r"^\S*in_training: this batch norm runs in training mode"
    ) as refused:
        load(path)
    assert "without training=True" in str(refused.value.hint)


def test_a_batch_norm_of_keras_3_in_training_mode_is_refused(tmp_path) -> None:
    x = keras3.layers.Input((8,), name="x")
    h = keras3.layers.BatchNormalization(name="norm")(keras3.layers.Dense(6)(x), training=True)
    model = keras3.Model(x, keras3.layers.Dropout(0.5)(h))  # whose seed may change
    model.export(tmp_path / "saved", verbose=False)
    with pytest.raises(UnsupportedError, match=r"norm\S*: this layer changes a variable"):
        load(tmp_path / "saved")


class Counting(keras3.layers.Layer):
    """Adds the number of its calls, which it counts in a variable."""

    def __init__(self, dtype: str) -> None:
        super().__init__(name="counting")
        self.count = self.add_weight(
            shape=(), initializer="zeros", dtype=dtype, trainable=False, name="count"
        )

    def call(self, x):
        self.count.assign(self.count + 1)
        return x + tf.cast(self.count.value, tf.float32)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("kind", ["memory", "saved"])
def test_a_layer_that_counts_is_refused(tmp_path, dtype, kind) -> None:
    x = keras3.layers.Input((8,), name="x")
    model = keras3.Model(x, keras3.layers.Dropout(0.5)(Counting(dtype)(x)))
    if kind == "saved":
        model.export(tmp_path / "saved", verbose=False)
    with pytest.raises(UnsupportedError, match=r"variable.*changes|changes a variable"):
        load(model if kind == "memory" else tmp_path / "saved")


def test_a_batch_norm_as_it_should_be_is_read(tmp_path) -> None:
    x = L.Input((8,), name="x")
    model = keras.Model(x, L.BatchNormalization()(L.Dense(6)(x), training=False))
    assert load(written(model, tmp_path, "saved")).outputs


@pytest.mark.parametrize(
    ("node", "layer"),
    [
        ("model/lstm/PartitionedCall/while", "model/lstm"),
        ("StatefulPartitionedCall/functional_1/gru_1/while_1", "functional_1/gru_1"),
        ("model/rnn/TensorArrayUnstack/TensorListFromTensor", "model/rnn"),
        ("rnn/while/Enter", "rnn"),
        ("while/Exit", "while/Exit"),
        ("while", "while"),
        ("body/norm/FusedBatchNormV3", "body/norm"),
        ("FusedBatchNormV3", "FusedBatchNormV3"),
    ],
)
def test_a_layer_is_found_in_the_name_of_a_node(node, layer) -> None:
    assert layer_of(node) == layer


# -- signatures -------------------------------------------------------------------------------


@pytest.fixture
def several(tmp_path):
    """A SavedModel with the signatures `double` and `triple` and no default."""
    module = tf.Module()
    spec = [tf.TensorSpec((None, 4), tf.float32, "x")]
    module.double = tf.function(lambda x: {"y": x * 2}, input_signature=spec)
    module.triple = tf.function(lambda x: {"y": x * 3}, input_signature=spec)
    path = tmp_path / "saved"
    signatures = {"double": module.double, "triple": module.triple}
    tf.saved_model.save(module, str(path), signatures=signatures)
    return path


@pytest.mark.parametrize(("signature", "factor"), [("double", 2), ("triple", 3)])
def test_a_signature_is_read_by_its_name(several, signature, factor) -> None:
    x = np.ones((2, 4), np.float32)
    found = evaluate(load(several, signature=signature), {"x": x})
    np.testing.assert_array_equal(found["y"], factor * x)


def test_several_signatures_are_listed(several) -> None:
    with pytest.raises(UsageError, match=r"several signatures.*`double`, `triple`") as refused:
        load(several)
    assert "--signature double" in str(refused.value.hint)
    with pytest.raises(UsageError, match=r"no signature `half`\n.*`double`, `triple`"):
        quantize(several, signature="half")


def test_the_command_line_takes_a_signature(several) -> None:
    assert "--signature double" in run("inspect", several).err
    done = run("inspect", several, "--signature", "triple", "--text")
    assert done.code == 0 and "mul" in done.out


def test_other_files_have_no_signature(tmp_path) -> None:
    path = written(recurrent("SimpleRNN", unroll=True), tmp_path, "h5")
    with pytest.raises(UsageError, match="only a SavedModel has signatures"):
        load(path, signature="serving_default")


# -- open sizes -------------------------------------------------------------------------------


def test_open_sizes_come_with_the_option_that_helps(tmp_path) -> None:
    x = L.Input((None, None, 3), name="image")
    h = L.GlobalAveragePooling2D(name="pool")(L.ReLU()(L.Conv2D(4, 3)(x)))
    path = written(keras.Model(x, L.Dense(2)(h)), tmp_path, "h5")
    data = np.random.default_rng(0).normal(size=(8, 6, 6, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", data)
    advice = r"--input-shape image=\?,224,224,3"
    (reason,) = (
        r.reason
        for r in quantize(path, data, effort="plain").trace.refusals
        if r.reason.startswith("stays float") and "pool" in r.node
    )
    assert re.search(advice, reason)
    assert "--input-shape image=?,224,224,3" in " ".join(run("inspect", path).out.split())
    sized = quantize(path, data, effort="plain", input_shapes={"image": (None, 6, 6, 3)})
    assert not [r for r in sized.trace.refusals if r.reason.startswith("stays float")]
