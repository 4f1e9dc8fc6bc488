"""Every format through the same door."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from qgraph.frontends import load, load_keras
from qgraph.interpret import evaluate
from tests.helpers.graphs import opaque_kinds
from tests.helpers.tf_graphs import graph_def_of, run_tf, v1

X = np.random.default_rng(0).standard_normal((2, 8, 8, 3)).astype("float32")


def network():
    x = v1.placeholder("float32", (None, 8, 8, 3), "image")
    w = np.random.default_rng(1).standard_normal((3, 3, 3, 4)).astype("float32")
    return tf.nn.relu(tf.nn.conv2d(x, w, 2, "SAME"), name="features")


def assert_network(graph, expected, tolerance=1e-5):
    found = evaluate(graph, {graph.inputs[0]: X})
    assert opaque_kinds(graph) == []
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["net.pb", "net.pbtxt", "net.bin"])
def test_frozen_graph_binary_or_text_whatever_its_suffix(tmp_path, name):
    graph_def = graph_def_of(network)
    for text in (False, True):
        path = tmp_path / name
        tf.io.write_graph(graph_def, str(tmp_path), name, as_text=text)
        assert_network(load(path), {"y": run_tf(graph_def, {"image": X}, ["y"])[0]})
        assert load(str(path)).name == "net"


def test_constants_lie_over_the_file_and_are_read_only(tmp_path):
    (tmp_path / "net.pb").write_bytes(graph_def_of(network).SerializeToString())
    graph = load(tmp_path / "net.pb")
    weights = next(n.attrs["value"] for n in graph.nodes.values() if n.op == "const")
    assert not weights.flags.owndata
    assert not weights.flags.writeable


def test_tensorflow_is_imported_late():
    code = "import sys, qgraph.frontends; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- Keras ----------------------------------------------------------------------------------


def small_model():
    tf_keras.utils.set_random_seed(0)
    layers = tf_keras.layers
    image = layers.Input((8, 8, 3), name="image")
    y = layers.Conv2D(4, 3, padding="same", use_bias=False)(image)
    y = layers.BatchNormalization(moving_mean_initializer="ones")(y)
    y = layers.DepthwiseConv2D(3, strides=2)(layers.ReLU(6.0)(y))
    y = layers.Dropout(0.5)(layers.LeakyReLU(0.1)(layers.ZeroPadding2D(1)(y)))
    flat = layers.Flatten()(layers.MaxPooling2D(2)(y))
    head = layers.Dense(5, activation="softmax", name="classes")(flat)
    side = layers.Dense(2, name="box")(layers.GlobalAveragePooling2D()(y))
    return tf_keras.Model(image, [head, side])


@pytest.fixture(scope="module")
def keras_model():
    model = small_model()
    head, side = model(X, training=False)
    return model, {"classes": head.numpy(), "box": side.numpy()}


@pytest.mark.parametrize("name", ["net.h5", "net.hdf5", "net.keras", "net.model"])
def test_keras_file(tmp_path, keras_model, name):
    model, expected = keras_model
    if name.endswith(".model"):
        model.save(tmp_path / "net.h5")
        (tmp_path / "net.h5").rename(tmp_path / name)
    else:
        model.save(tmp_path / name)
    graph = load(tmp_path / name)
    assert_network(graph, expected)
    assert graph.inputs == ["image"]


def test_keras_model_in_memory(keras_model):
    model, expected = keras_model
    assert_network(load_keras(model), expected)


def test_keras_model_with_several_inputs_keeps_their_order():
    layers = tf_keras.layers
    b, a = layers.Input((3,), name="b"), layers.Input((3,), name="a")
    graph = load_keras(tf_keras.Model([b, a], layers.Subtract(name="d")([b, a])))
    x = np.ones((2, 3), "float32")
    assert graph.inputs == ["b", "a"]
    np.testing.assert_array_equal(evaluate(graph, {"b": 3 * x, "a": x})["d"], 2 * x)


# -- SavedModels ------------------------------------------------------------------------------


def test_saved_keras_model(tmp_path, keras_model):
    model, expected = keras_model
    model.save(tmp_path / "net", save_format="tf")
    graph = load(tmp_path / "net")
    assert_network(graph, expected)
    assert_network(load(tmp_path / "net" / "saved_model.pb"), expected)
    assert list(load(tmp_path / "net", outputs=["box"]).outputs) == ["box"]


class Nested(tf.Module):
    def __init__(self):
        super().__init__()
        self.scale = tf.Variable([1.0, 2.0, 3.0])

    @tf.function
    def inner(self, x):
        return x * self.scale

    @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 3), tf.float32, "image")])
    def infer(self, x):
        return {"scaled": self.inner(x), "sum": tf.reduce_sum(self.inner(-x), [1, 2])}


def test_saved_functions_and_resource_variables(tmp_path):
    module = Nested()
    tf.saved_model.save(module, str(tmp_path / "net"), {"only": module.infer})
    expected = {k: v.numpy() for k, v in module.infer(tf.constant(X)).items()}
    assert_network(load(tmp_path / "net"), expected)


@pytest.fixture
def session_of_a_trained_network():
    """A TF1 session with a network, its loss and its optimiser, and the network's result."""
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        x = v1.placeholder("float32", (None, 8, 8, 3), "image")
        labels = v1.placeholder("int32", (None,), "labels")
        w = v1.get_variable("w", (3, 3, 3, 4), use_resource=False)
        resource = v1.get_variable("scale", (4,), use_resource=True)
        y = tf.reduce_mean(tf.nn.conv2d(x, w, 1, "SAME") * resource, [1, 2], name="logits")
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, y)
        v1.train.AdamOptimizer().minimize(tf.reduce_mean(loss))
        session.run(v1.global_variables_initializer())
        yield session, x, y, session.run(y, {x: X})


def test_saved_model_of_tensorflow_1(tmp_path, session_of_a_trained_network):
    session, x, y, expected = session_of_a_trained_network
    v1.saved_model.simple_save(session, str(tmp_path / "net"), {"image": x}, {"scores": y})
    assert_network(load(tmp_path / "net"), {"scores": expected})


def test_serving_graph_among_several_and_an_input_it_does_not_use(
    tmp_path, session_of_a_trained_network
):
    session, x, y, expected = session_of_a_trained_network
    labels = session.graph.get_tensor_by_name("labels:0")
    signature = v1.saved_model.predict_signature_def({"image": x, "labels": labels}, {"scores": y})
    builder = v1.saved_model.Builder(str(tmp_path / "net"))
    builder.add_meta_graph_and_variables(session, ["train"])
    builder.add_meta_graph(["serve"], {"serving_default": signature})
    builder.save()
    assert_network(load(tmp_path / "net"), {"scores": expected})


def test_checkpoint_with_its_metagraph(tmp_path, session_of_a_trained_network):
    session, _, _, expected = session_of_a_trained_network
    prefix = v1.train.Saver().save(session, str(tmp_path / "net.ckpt"), global_step=7)
    for path in (prefix, f"{prefix}.meta", f"{prefix}.index"):
        assert_network(load(path), {"logits": expected})
    graph = load(f"{prefix}.meta", outputs=["Conv2D"])
    assert list(graph.outputs) == ["Conv2D"]


@pytest.mark.parametrize("stem", ["", "net[1]", "a *", "directory", "n\udce9t"])
def test_a_checkpoint_may_have_any_name(tmp_path, session_of_a_trained_network, stem):
    """None in front of `.meta`, one that reads like a pattern, one of a directory beside it."""
    session, _, _, expected = session_of_a_trained_network
    v1.train.Saver().save(session, str(tmp_path / "net"), write_state=False)
    for end in (".meta", ".index", ".data-00000-of-00001"):
        (tmp_path / f"net{end}").rename(tmp_path / f"{stem}{end}")
    (tmp_path / "directory").mkdir()
    assert_network(load(tmp_path / f"{stem}.meta"), {"logits": expected})
    assert_network(load(tmp_path / f"{stem}.index"), {"logits": expected})
