"""Means over the length of signals, and over one side of images: integers in every form."""

import numpy as np
import pytest
import tf_keras as keras

from qgraph import quantize
from qgraph.stored import load_network
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.forms import OWN_PROFILES

layers = keras.layers


def pooled_convolution(x):
    h = layers.Conv1D(6, 3, activation="relu")(x)
    return layers.Dense(3)(layers.Activation("swish")(layers.GlobalAveragePooling1D()(h)))


def pooled_matrix_product(x):
    h = layers.Dense(6, activation="relu")(x)
    return layers.Dense(3)(layers.GlobalAveragePooling1D(keepdims=True)(h))


def squeeze_and_excite(x):
    h = layers.Conv1D(6, 3, activation="relu")(x)
    gate = layers.Dense(6, activation="sigmoid")(layers.GlobalAveragePooling1D(keepdims=True)(h))
    return layers.Conv1D(3, 3)(layers.Multiply()([h, gate]))


def mean_of_rows(x):
    h = layers.Conv2D(5, 3, padding="same", activation="relu")(x)
    return layers.Conv1D(3, 2)(keras.backend.mean(h, axis=1))


def mean_of_columns(x):
    h = layers.Conv2D(5, 3, padding="same", activation="relu")(x)
    return layers.Conv2D(3, 1)(keras.backend.mean(h, axis=-2, keepdims=True))


SIGNAL, IMAGE = (9, 4), (4, 6, 3)
NETWORKS = [
    (pooled_convolution, SIGNAL),
    (pooled_matrix_product, SIGNAL),
    (squeeze_and_excite, SIGNAL),
    (mean_of_rows, IMAGE),
    (mean_of_columns, IMAGE),
]


@needs_compiler
@pytest.mark.parametrize(("build", "shape"), NETWORKS, ids=lambda v: getattr(v, "__name__", None))
def test_every_form_is_exact(tmp_path, build, shape) -> None:
    keras.utils.set_random_seed(0)
    x = layers.Input(shape, name="x")
    keras.Model(x, build(x)).export(tmp_path / "model")
    samples = np.random.default_rng(0).normal(size=(16, *shape)).astype(np.float32)
    made = quantize(tmp_path / "model", samples, effort="plain")
    assert not [r for r in made.trace.refusals if r.reason.startswith("stays float")]
    out = made.save(tmp_path / "out")
    program = load_network(out).program
    assert len(program.entries) == len(program.exits) == 1
    assert sum(step.op == "depthwise_conv2d" for step in program.steps) == 1
    found = verify(out)
    assert found.equal and found.refused.keys() <= {*OWN_PROFILES}
