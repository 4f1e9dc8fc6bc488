"""Files of Keras 2 and 3 are read by the Keras that wrote them."""

from importlib import import_module

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import qgraph
from qgraph.errors import LoadError
from qgraph.frontends.keras.known import OF_APPLICATIONS
from qgraph.interpret import evaluate
from tests.helpers.keras_files import BOTH, SUFFIX, X, assert_same, small


@BOTH
@SUFFIX
def test_file_is_read_by_the_keras_that_wrote_it(tmp_path, K, suffix):
    model = small(K, K.layers.BatchNormalization(), K.layers.ReLU(6.0), K.layers.MaxPooling2D())
    model.compile("adam", "mse")
    path = tmp_path / f"m.{suffix}"
    model.save(path)
    graph = qgraph.load(path)
    assert graph.inputs == ["x"] and list(graph.outputs) == ["y"]
    assert_same(graph, model)
    path.rename(tmp_path / "renamed")  # the content decides
    assert_same(qgraph.load(tmp_path / "renamed"), model)


@BOTH
def test_models_within_models_and_wrappers(tmp_path, K):
    inner = K.Sequential([K.layers.Conv2D(3, 3), K.layers.Activation("tanh")], name="inner")
    inner.compile("adam", "mse", metrics=["mae"])
    model = small(K, inner, K.layers.TimeDistributed(K.layers.Dense(2)))
    model.save(tmp_path / "m.keras")
    assert_same(qgraph.load(tmp_path / "m.keras"), model)


@BOTH
def test_arithmetic_between_layers(tmp_path, K):
    x = K.Input((8, 8, 1), name="x")
    y = K.layers.Conv2D(4, 3)(x)
    pooled = K.layers.AveragePooling2D(2)(y * 2.0 + 1.0)
    model = K.Model(x, K.layers.Flatten()(pooled[:, 1:] - 0.5))
    model.save(tmp_path / "m.keras")
    assert_same(qgraph.load(tmp_path / "m.keras"), model)


@BOTH
def test_custom_loss_does_not_matter(tmp_path, K):
    def loss(wanted, found):
        return K.losses.mean_squared_error(wanted, found) * 2

    model = small(K)
    model.compile("adam", loss)
    model.save(tmp_path / "m.keras")
    assert_same(qgraph.load(tmp_path / "m.keras"), model)


@BOTH
def test_model_in_memory(K):
    model = small(K)
    assert_same(qgraph.load(model), model)
    samples = np.repeat(X, 8, 0)
    result = qgraph.quantize(model, samples, effort="plain")
    assert result.facts.model == model.name
    (outputs,) = evaluate(result.graph, {"x": X}).values()
    np.testing.assert_allclose(outputs, np.asarray(model(X)), atol=0.1)


@BOTH
def test_sequential_models_in_memory_and_in_files(tmp_path, K):
    K.utils.set_random_seed(0)
    encoder = [K.layers.Conv2D(4, 3), K.layers.BatchNormalization(), K.layers.ReLU()]
    inner = K.Sequential([K.Input((8, 8, 1)), *encoder])
    model = K.Sequential([inner, K.layers.GlobalAveragePooling2D(), K.layers.Dense(3)])
    assert_same(qgraph.load(inner), inner)
    model(X)  # Keras 2 builds it here
    assert_same(qgraph.load(model), model)
    for suffix in ("keras", "h5"):
        model.save(tmp_path / f"m.{suffix}")
        assert_same(qgraph.load(tmp_path / f"m.{suffix}"), model)


@BOTH
def test_inputs_in_a_dictionary(K):
    a, b = K.Input((3,), name="a"), K.Input((3,), name="b")
    difference = K.layers.Subtract(name="d")([b, a])
    model = K.Model({"b": b, "a": a}, [difference, K.layers.Add(name="s")([a, b])])
    graph = qgraph.load(model)
    one = np.ones((2, 3), "float32")
    found = evaluate(graph, {"a": one, "b": 3 * one})
    np.testing.assert_array_equal(found["d"], 2 * one)
    np.testing.assert_array_equal(found["s"], 4 * one)


def test_model_that_is_not_built():
    with pytest.raises(
        LoadError, match=r"inputs are unknown(.|\n)*for a file, do so before saving it"
    ):
        qgraph.load(keras.Sequential([keras.layers.Dense(2)]))


@BOTH
@SUFFIX
@pytest.mark.parametrize("name", OF_APPLICATIONS)
def test_layers_of_applications(tmp_path, K, suffix, name):
    """ConvNeXt and InceptionResNetV2 have layers that Keras does not find by name."""
    module = import_module(f"{K.__name__}.src.applications.{OF_APPLICATIONS[name]}")
    layer = getattr(module, name)
    made = {
        "LayerScale": lambda: layer(0.5, 4),
        "StochasticDepth": lambda: layer(0.25),
        "CustomScaleLayer": lambda: layer(0.25),
    }[name]()
    model = small(K, (lambda x: made([x, x])) if name == "CustomScaleLayer" else made)
    path = tmp_path / f"m.{suffix}"
    model.save(path)
    assert_same(qgraph.load(path), model)


@SUFFIX
def test_initializers_of_tensorflow(tmp_path, suffix):
    """EfficientNetV2 of tf_keras has one."""
    model = small(tf_keras, tf_keras.layers.Dense(3, kernel_initializer=tf.constant_initializer(2)))
    path = tmp_path / f"m.{suffix}"
    model.save(path)
    assert_same(qgraph.load(path), model)
