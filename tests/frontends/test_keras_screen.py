"""Code in files of Keras is found before Keras reads them, and never run."""

import io
import json
import zipfile

import keras
import pytest
import tensorflow as tf
import tf_keras

import qgraph
from qgraph.errors import LoadError
from qgraph.frontends.keras import screen
from qgraph.frontends.keras.known import ACTIVATIONS, LAYERS, OPERATIONS, PLAIN
from tests.helpers.keras_files import (
    BOTH,
    SUFFIX,
    assert_same,
    config_of,
    dictionaries,
    refused,
    small,
    write_config,
)


@BOTH
@SUFFIX
def test_lambda_layer_is_refused_unless_trusted(tmp_path, K, suffix):
    model = small(K, K.layers.Lambda(lambda x: x * 2, name="mine", output_shape=(6, 6, 4)))
    path = tmp_path / f"m.{suffix}"
    model.save(path)
    message = refused(path, r"`Lambda` \(layer `mine`\)")
    assert "export" in message and "--trust" in message
    assert_same(qgraph.load(path, trust=True), model)


@SUFFIX
@pytest.mark.parametrize("class_name", ["TFOpLambda", "SlicingOpLambda"])
def test_calls_of_functions_that_a_file_names(tmp_path, suffix, class_name):
    path, written = tmp_path / f"m.{suffix}", tmp_path / "written"
    small(tf_keras).save(path)
    config = config_of(path)
    layer = config["config"]["layers"][1]
    layer["class_name"], layer["registered_name"] = class_name, class_name
    layer["module"] = "tf_keras.src.layers.core.tf_op_layer"
    layer["config"] = {"name": layer["config"]["name"], "function": "io.write_file"}
    layer["inbound_nodes"] = [[["x", 0, 0, {"filename": str(written), "contents": "x"}]]]
    write_config(path, config)
    refused(path, r"`tf\.io\.write_file`")
    assert not written.exists()


STRANGE = {
    "lambda as an activation": {"class_name": "__lambda__", "config": {"value": "4wAAAA=="}},
    "function of a module": {
        "class_name": "function", "module": "os", "config": "system", "registered_name": "system",
    },
    "function of the builtins": {"class_name": "function", "module": "builtins", "config": "eval"},
    "function of Keras": {
        "class_name": "function", "module": "keras.utils", "config": "get_file",
        "registered_name": "get_file",
    },
    "known name elsewhere": {"class_name": "Dense", "module": "subprocess", "config": {}},
    "known name in another part of Keras": {
        "class_name": "Dense", "module": "keras.src.saving.saving_lib", "config": {},
    },
    "registered package": {
        "class_name": "Dense", "module": "keras.layers", "config": {},
        "registered_name": "mine>Dense",
    },
    "class of the interpreter": {"class_name": "Popen", "module": "subprocess", "config": {}},
    "type spec": {"class_name": "__typespec__", "module": "builtins", "spec_name": "eval",
                  "registered_name": None, "config": []},
    "layer that loads a file": {"class_name": "TFSMLayer", "module": "keras.layers",
                                "config": {"filepath": "/tmp/x"}},
    "raw op that writes": {"class_name": "TensorFlowOpLayer", "config": {
        "name": "w", "node_def": {"op": "WriteFile", "name": "w"}}},
    "other spelling of Lambda": {"class_name": "Custom>Lambda", "config": {}},
    "loop over a function": {"class_name": "Map", "module": "keras.src.ops.core", "config": {}},
    "class name that is not text": {"class_name": ["Lambda"], "config": {}},
    "name of a function": "os.system",
}  # fmt: skip


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """Configurations of the same model by both versions of Keras, in both formats."""
    found = []
    for K in (tf_keras, keras):
        model = small(K, K.layers.TimeDistributed(K.layers.Dense(2)))
        for suffix in ("keras", "h5"):
            path = tmp_path_factory.mktemp("configs") / f"m.{suffix}"
            model.save(path)
            found.append(json.dumps(screen.without_compile(config_of(path))))
    return found


@pytest.mark.parametrize("strange", STRANGE)
def test_nothing_strange_passes_in_any_place(configs, strange):
    """An unknown object is found as an activation, as an initializer, and as the layer of a
    wrapper.
    """
    for whole in configs:
        screen.check(json.loads(whole))
        for place in ("activation", "kernel_initializer", "layer"):
            if place != "activation" and isinstance(STRANGE[strange], str):
                continue
            config = json.loads(whole)
            [c for c in dictionaries(config) if place in c][-1][place] = STRANGE[strange]
            with pytest.raises(LoadError, match=r"code or calls|custom or unknown"):
                screen.check(config)


@BOTH
@SUFFIX
def test_keras_is_not_called_before_the_config_was_looked_through(tmp_path, K, suffix, monkeypatch):
    path = tmp_path / f"m.{suffix}"
    small(K).save(path)
    for library in (tf_keras, keras):
        monkeypatch.setattr(library.models, "load_model", lambda *a, **k: pytest.fail("loaded"))
    config = config_of(path)
    config["config"]["layers"][1]["config"]["activation"] = STRANGE["lambda as an activation"]
    write_config(path, config)
    refused(path, "`__lambda__`")


@BOTH
@SUFFIX
def test_what_keras_reads_has_to_be_a_model(tmp_path, K, suffix, monkeypatch):
    """A damaged class name makes Keras return the config itself."""
    path = tmp_path / f"m.{suffix}"
    small(K).save(path)
    for library in (tf_keras, keras):
        monkeypatch.setattr(library.models, "load_model", lambda *a, **k: {})
    refused(path, "reads a dict from this file, not a model")


def test_compile_config_in_hdf5_and_within_layers(tmp_path):
    small(tf_keras).save(tmp_path / "m.h5")
    config = config_of(tmp_path / "m.h5")
    config["compile_config"] = {"loss": {"class_name": "function", "module": "os", "config": "x"}}
    write_config(tmp_path / "m.h5", config)
    refused(tmp_path / "m.h5", "compile_config")


class Mine(keras.layers.Layer):
    def call(self, x):
        return x * 1.5


class Yours(tf_keras.layers.Layer):
    def call(self, x):
        return x * 1.5


@SUFFIX
@pytest.mark.parametrize(("K", "layer"), [(tf_keras, Yours), (keras, Mine)])
def test_custom_layers_are_named(tmp_path, K, layer, suffix):
    path = tmp_path / f"m.{suffix}"
    model = small(K, *(layer(name=f"special{i}") for i in range(9)))
    model.save(path)
    message = refused(path, rf"{layer.__name__}` \(layer `special0`\)(.|\n)* and 5 more")
    assert "model.export(DIRECTORY)" in message
    with K.utils.custom_object_scope({layer.__name__: layer}):
        assert_same(qgraph.load(path, trust=True), model)


@BOTH
def test_weights_without_a_model(tmp_path, K):
    small(K).save_weights(tmp_path / "m.weights.h5")
    refused(tmp_path / "m.weights.h5", "holds weights only(.|\n)*model.export")


def test_keras_3_that_is_not_installed(tmp_path, monkeypatch):
    small(keras).save(tmp_path / "m.keras")
    monkeypatch.setattr(keras, "__version__", "2.15.0")
    refused(tmp_path / "m.keras", r"by Keras 3\.\S+, and Keras 3 is not installed(.|\n)*export")


@BOTH
@SUFFIX
def test_layers_larger_than_the_weights_of_the_file(tmp_path, K, suffix):
    """A few bytes of config must not take all memory."""
    path = tmp_path / f"m.{suffix}"
    small(K).save(path)
    config = config_of(path)
    next(c for c in dictionaries(config) if "units" in c)["units"] = 10**9
    write_config(path, config)
    refused(path, "layers are larger than the weights")


def test_config_nested_without_bound(tmp_path):
    small(keras).save(tmp_path / "m.keras")
    for depth in (500, 100_000):
        buffer = io.BytesIO()
        with (
            zipfile.ZipFile(tmp_path / "m.keras") as archive,
            zipfile.ZipFile(buffer, "w") as made,
        ):
            for name in ("metadata.json", "model.weights.h5"):
                made.writestr(name, archive.read(name))
            made.writestr("config.json", '{"a":' + "[" * depth + "]" * depth + "}")
        (tmp_path / "deep.keras").write_bytes(buffer.getvalue())
        refused(tmp_path / "deep.keras", "config(.|\n)*(nested|recursion)")


@BOTH
@pytest.mark.parametrize("name", ["MobileNetV3Small", "ConvNeXtTiny"])
def test_networks_that_keras_ships(K, name):
    network = getattr(K.applications, name)(
        weights=None, include_top=False, input_shape=(64, 64, 3)
    )
    screen.check(screen.without_compile(json.loads(network.to_json())))


def test_known_names_exist_in_keras():
    """A name that no Keras has would let a class of that name pass."""
    from keras.src.ops import core, image, linalg, math, nn
    from keras.src.ops import numpy as arrays

    old = {"BatchNormalizationV1", "BatchNormalizationV2", "GRUV2", "LSTMV2"}
    old |= {"SyncBatchNormalization", "LayerScale"}  # the last is of keras.applications
    layers = {*dir(tf_keras.layers), *dir(keras.layers)} | old
    assert layers >= LAYERS
    modules = (core, image, linalg, math, nn, arrays)
    assert {name for module in modules for name in dir(module)} >= OPERATIONS
    assert {*dir(tf_keras.activations), *dir(keras.activations)} >= ACTIVATIONS
    assert all(hasattr(tf, name) for name in PLAIN)
    assert not {"Lambda", "TFSMLayer", "JaxLayer", "TorchModuleWrapper"} & screen.CLASSES
