"""Real networks load and compute what TensorFlow computes."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from qgraph.frontends import load
from qgraph.interpret import evaluate
from tests.helpers.downloads import fetched
from tests.helpers.graphs import opaque_kinds
from tests.helpers.tf_graphs import run_tf, v1

POLICIES = sorted((Path(__file__).parents[3] / "shared" / "policies").glob("*.pb"))


def asset(name):
    from benchmarks import assets

    return fetched(getattr(assets, name))


def uniform(*shape):
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def assert_close(found, expected, tolerance=1e-5):
    """To float32's rounding, on the scale of the tensor."""
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.skipif(not POLICIES, reason="the trained policies are not here")
@pytest.mark.parametrize("path", POLICIES, ids=lambda p: p.stem)
def test_policy(path):
    facts = json.loads(path.with_suffix(".json").read_text())
    x = uniform(64, facts["observation_size"])
    graph = load(path)
    output = facts["output"].removesuffix(":0")
    assert graph.inputs == [facts["input"].removesuffix(":0")]
    assert list(graph.outputs) == [output]
    assert opaque_kinds(graph) == []
    graph_def = v1.GraphDef.FromString(path.read_bytes())
    (expected,) = run_tf(graph_def, {graph.inputs[0]: x}, [output])
    assert_close(evaluate(graph, {graph.inputs[0]: x})[output], expected)


@pytest.mark.real
@pytest.mark.parametrize("outputs", [None, ["MobilenetV1/Predictions/Reshape"]])
def test_mobilenet_v1_frozen(outputs):
    path = asset("mobilenet_v1")
    graph = load(path, outputs=outputs)
    (output,) = graph.outputs
    assert output == (outputs or ["final_result"])[0]
    assert opaque_kinds(graph) == []
    x = uniform(1, 224, 224, 3)
    graph_def = v1.GraphDef.FromString(path.read_bytes())
    (expected,) = run_tf(graph_def, {"input": x}, [output])
    assert_close(evaluate(graph, {"input": x})[output], expected)


@pytest.mark.real
@pytest.mark.parametrize("name", ["cifar10_network", "face_mask_network"])
def test_keras_network(name):
    import tf_keras

    path = asset(name)
    model = tf_keras.models.load_model(path, compile=False)
    graph = load(path)
    assert opaque_kinds(graph) == []
    assert graph.inputs == model.input_names
    assert list(graph.outputs) == model.output_names
    x = uniform(2, *model.input_shape[1:])
    (found,) = evaluate(graph, {graph.inputs[0]: x}).values()
    assert_close(found, model(x, training=False).numpy())


@pytest.mark.real
def test_basic_pitch_saved_model():
    path = asset("basic_pitch_saved_model")
    graph = load(path)
    assert opaque_kinds(graph) == []
    (name,) = graph.inputs
    x = uniform(1, 43844, 1) / 10
    expected = tf.saved_model.load(str(path)).signatures["serving_default"](tf.constant(x))
    found = evaluate(graph, {name: x})
    assert found.keys() == expected.keys() == {"contour", "note", "onset"}
    for key, array in expected.items():
        # A logarithm of small powers: TensorFlow itself is 4e-5 off the result in float64.
        assert_close(found[key], array.numpy(), 1e-4)
