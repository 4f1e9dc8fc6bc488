"""Small models of Keras 2 and 3, their files, and the configs in them."""

import json
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tf_keras

import qgraph
from qgraph.errors import LoadError
from qgraph.interpret import evaluate

X = np.random.default_rng(0).standard_normal((2, 8, 8, 1)).astype("float32")
BOTH = pytest.mark.parametrize("K", [tf_keras, keras], ids=["keras2", "keras3"])
SUFFIX = pytest.mark.parametrize("suffix", ["keras", "h5"])


def small(K, *layers, **options):
    """A convolution, the given layers, and a dense layer."""
    K.utils.set_random_seed(0)
    x = y = K.Input((8, 8, 1), name="x")
    for layer in (K.layers.Conv2D(4, 3, activation="relu"), *layers, K.layers.Flatten()):
        y = layer(y)
    return K.Model(x, K.layers.Dense(3, name="y")(y), **options)


def assert_same(graph, model, x=X):
    (found,) = evaluate(graph, {graph.inputs[0]: x}).values()
    np.testing.assert_allclose(found, np.asarray(model(x)), atol=1e-5)


def refused(path, match):
    with pytest.raises(LoadError, match=match) as caught:
        qgraph.load(path)
    assert len(str(caught.value)) < 600
    return str(caught.value)


def config_of(path):
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return json.loads(file.attrs["model_config"])
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("config.json"))


def write_config(path, config):
    if path.suffix == ".h5":
        with h5py.File(path, "a") as file:
            file.attrs["model_config"] = json.dumps(config)
        return
    with zipfile.ZipFile(path) as archive:
        others = {n: archive.read(n) for n in archive.namelist() if n != "config.json"}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in others.items():
            archive.writestr(name, content)
        archive.writestr("config.json", json.dumps(config))


def dictionaries(config):
    if isinstance(config, dict):
        yield config
        for value in config.values():
            yield from dictionaries(value)
    elif isinstance(config, list):
        for value in config:
            yield from dictionaries(value)
