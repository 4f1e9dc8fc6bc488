"""Calls between layers of Keras 2 models: sound ones are read, endless ones are refused."""

import json
import signal

import numpy as np
import pytest
import tf_keras as K

import qgraph
from qgraph.errors import LoadError
from qgraph.frontends.keras.topology import check_calls
from qgraph.interpret import evaluate
from tests.helpers.damage import too_long
from tests.helpers.keras_files import config_of, write_config

layers = K.layers
SUFFIXES = pytest.mark.parametrize("suffix", ["keras", "h5"])


def shared_layers(x):
    dense = layers.Dense(6, activation="relu")
    return layers.Add()([dense(x), dense(dense(x))])


def nested_functional(x):
    inner = K.Input((6,))
    half = K.Model(inner, layers.Dense(6)(inner))
    return layers.Concatenate()([half(x), half(half(x))])


def nested_sequential_with_an_input(x):
    inner = K.Sequential([K.Input((6,)), layers.Dense(6), layers.ReLU()])
    return layers.Multiply()([inner(x), inner(inner(x))])


def nested_sequential_without_an_input(x):
    inner = K.Sequential([layers.Dense(6), layers.ReLU()])
    return layers.Multiply()([inner(x), inner(inner(x))])


def nested_sequential_with_an_input_shape(x):
    inner = K.Sequential([layers.Dense(6, input_shape=(6,)), layers.ReLU()])
    return layers.Multiply()([inner(x), inner(inner(x))])


def arguments_by_name(x):
    return layers.Subtract()([x, x * 0.5 + 1.0 - layers.Dense(6)(x)])


BUILDERS = [
    shared_layers, nested_functional, nested_sequential_with_an_input,
    nested_sequential_without_an_input, nested_sequential_with_an_input_shape, arguments_by_name,
]  # fmt: skip


@SUFFIXES
@pytest.mark.parametrize("build", BUILDERS, ids=lambda b: b.__name__)
def test_sound_models_are_read(tmp_path, build, suffix):
    K.utils.set_random_seed(0)
    x = K.Input((6,), name="x")
    model = K.Model(x, layers.Dense(2)(build(x)))
    path = tmp_path / f"m.{suffix}"
    model.save(path)
    samples = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    (found,) = evaluate(qgraph.load(path), {"x": samples}).values()
    np.testing.assert_allclose(found, model(samples), rtol=1e-5, atol=1e-5)


def chain():
    K.utils.set_random_seed(0)
    x = K.Input((4,), name="x")
    a = layers.Dense(4, name="a")(x)
    b = layers.Dense(4, name="b")(a)
    c = layers.Add(name="c")([a, b])
    return K.Model(x, layers.Dense(2, name="y")(c))


@pytest.fixture
def at_most_20_seconds():
    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@SUFFIXES
@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize(
    ("layer", "reference", "lost"),
    [
        ("b", ["a", 2147483647, 0], "call 2147483647 of layer `a`"),
        ("b", ["a", None, 0], "call None of layer `a`"),
        ("b", ["a", 0.5, 0], "call 0.5 of layer `a`"),
        ("b", ["a", [0], 0], r"call \[0\] of layer `a`"),
        ("b", ["b", 0, 0], "call 0 of layer `b`"),
        ("a", ["y", 0, 0], "call 0 of layer `y`"),
        ("b", ["nobody", 0, 0], "call 0 of layer `nobody`"),
        ("b", None, "call 0 of layer `b`"),
    ],
)
def test_calls_that_never_can_be_made_are_refused(
    tmp_path, at_most_20_seconds, suffix, trust, layer, reference, lost
):
    path = tmp_path / f"m.{suffix}"
    chain().save(path)
    config = config_of(path)
    (entry,) = [e for e in config["config"]["layers"] if e["name"] == layer]
    if reference is None:
        entry["inbound_nodes"] = []
    else:
        entry["inbound_nodes"][0][0][:3] = reference
    write_config(path, config)
    with pytest.raises(LoadError, match=f"{lost}, which is never produced"):
        qgraph.load(path, trust=trust)


def test_a_model_within_a_model_is_checked_too():
    x = inner = K.Input((4,), name="x")
    config = json.loads(K.Model(x, K.Model(inner, chain()(inner))(x)).to_json())
    check_calls(config)
    deepest = [e for e in found_layers(config) if e["name"] == "c"]
    assert len(deepest) == 1
    deepest[0]["inbound_nodes"][0][1][1] = 1
    with pytest.raises(LoadError, match="layer `c` takes the result of call 1 of layer `b`"):
        check_calls(config)


def found_layers(config):
    if isinstance(config, dict):
        yield from [config] if "inbound_nodes" in config else []
        for value in config.values():
            yield from found_layers(value)
    elif isinstance(config, list):
        for value in config:
            yield from found_layers(value)
