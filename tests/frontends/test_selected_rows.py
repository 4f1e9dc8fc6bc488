"""Rows of activations at indices that are inputs: products with one-hot vectors."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from qgraph import load, quantize
from qgraph.errors import CalibrationError
from qgraph.interpret import evaluate
from qgraph.verification.verify import verify
from tests.helpers.forms import OWN_PROFILES
from tests.helpers.graphs import opaque_kinds
from tests.helpers.onnx_graphs import assert_like_runtime, f, info, model_of

layers = keras.layers
STEPS, CHANNELS, PICKED = 6, 3, 2


def sequences(count: int = 24) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=(count, STEPS, CHANNELS)).astype(np.float32),
        "at": rng.integers(0, STEPS, (count, PICKED)).astype(np.int32),
    }


def network() -> keras.Model:
    """A layer, two steps of its results, and another layer."""
    keras.utils.set_random_seed(0)
    x, at = (
        layers.Input((STEPS, CHANNELS), name="x"),
        layers.Input((PICKED,), dtype="int32", name="at"),
    )
    steps = tf.gather(layers.Dense(4)(x), at, axis=1, batch_dims=1)
    return keras.Model([x, at], layers.Dense(2)(layers.Flatten()(steps)))


def test_steps_of_each_sample_have_integers(tmp_path) -> None:
    model, data = network(), sequences()
    (found,) = evaluate(load(model), data).values()
    np.testing.assert_allclose(found, model([data["x"], data["at"]]), atol=1e-5)
    made = quantize(model, data, effort="plain")
    assert not [r for r in made.trace.refusals if r.reason.startswith("stays float")]
    assert made.facts.agreement.sqnr > 25
    found = verify(made.save(tmp_path / "out"))
    assert found.equal and not set(found.refused) - {*OWN_PROFILES}


def test_a_negative_index_is_refused() -> None:
    data = sequences()
    data["at"][3, 1] = -1
    with pytest.raises(CalibrationError, match="an index of -1 in the samples"):
        quantize(network(), data, effort="plain")


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_gather_by_samples(data) -> None:
    """`tf.gather` of any rank, with any number of batch axes."""
    batch = [3, *data.draw(st.lists(st.integers(1, 3), max_size=1))]
    size, rest = data.draw(st.integers(2, 4)), data.draw(st.lists(st.integers(1, 3), max_size=2))
    own = data.draw(st.lists(st.integers(1, 3), max_size=2))
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(*batch, size, *rest)).astype(np.float32)
    at = rng.integers(0, size, (*batch, *own))
    x, index = (
        layers.Input(a.shape[1:], dtype=a.dtype, name=n) for a, n in ((rows, "x"), (at, "i"))
    )
    axis = len(batch)
    model = keras.Model([x, index], tf.gather(x, index, axis=axis, batch_dims=axis))
    graph = load(model)
    (found,) = evaluate(graph, {"x": rows, "i": at}).values()
    assert not opaque_kinds(graph)
    np.testing.assert_array_equal(found, tf.gather(rows, at, axis=axis, batch_dims=axis))


@pytest.mark.parametrize("shape, axis", [((4, 5), 1), ((2, 3, 4), 1), ((2, 3, 4), -1)])
def test_elements_of_onnx(shape, axis) -> None:
    x, wanted = f(*shape), [*shape]
    wanted[axis] = 3
    at = np.random.default_rng(0).integers(-shape[axis], shape[axis], wanted)
    node = helper.make_node("GatherElements", ["x", "at"], ["y"], axis=axis)
    inputs = {"x": info("x", shape), "at": info("at", wanted, "int64")}
    assert_like_runtime(model_of([node], inputs), {"x": x, "at": at})


@pytest.mark.parametrize("rest", [(), (3,)])
def test_rows_of_onnx(rest) -> None:
    x, at = f(4, 5, *rest), np.int64([[-1], [2], [0], [4]])
    node = helper.make_node("GatherND", ["x", "at"], ["y"], batch_dims=1)
    inputs = {"x": info("x", x.shape), "at": info("at", at.shape, "int64")}
    assert_like_runtime(model_of([node], inputs), {"x": x, "at": at})
