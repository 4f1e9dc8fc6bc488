"""Transposed convolutions of Keras: read, with any number of samples, and quantized exactly."""

import numpy as np
import pytest
import tf_keras as keras

from qgraph import load, quantize
from qgraph.interpret import evaluate
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.forms import OWN_PROFILES


def written(folder, size=(5, 6), **options):
    keras.utils.set_random_seed(0)
    x = keras.layers.Input((*size, 3), name="x")
    h = keras.layers.Conv2DTranspose(4, name="up", bias_initializer="random_normal", **options)(x)
    model = keras.Model(x, keras.layers.Conv2D(2, 1)(keras.layers.ReLU()(h)))
    model.save(folder / "model.h5")
    return folder / "model.h5", model


CASES = [
    {"kernel_size": 3, "strides": 2, "padding": "same"},
    {"kernel_size": 4, "strides": 2, "padding": "same"},
    {"kernel_size": 2, "strides": 2, "padding": "valid"},
    {"kernel_size": 3, "strides": 2, "padding": "valid"},
    {"kernel_size": 3, "strides": 1, "padding": "same"},
    {"kernel_size": 5, "strides": 3, "padding": "same"},
    {"kernel_size": 2, "strides": 3, "padding": "valid"},
    {"kernel_size": (3, 4), "strides": (1, 2), "padding": "same"},
    {"kernel_size": (4, 2), "strides": (3, 1), "padding": "valid"},
    {"kernel_size": 3, "strides": 2, "padding": "same", "output_padding": 1},
]


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("options", CASES, ids=str)
def test_it_computes_what_keras_computes(tmp_path, options, batch) -> None:
    path, model = written(tmp_path, **options)
    graph = load(path)
    assert "opaque" not in {n.op for n in graph.nodes.values()}
    assert graph.types[graph.inputs[0]].shape == (None, 5, 6, 3)
    x = np.random.default_rng(0).normal(size=(batch, 5, 6, 3)).astype(np.float32)
    (found,) = evaluate(graph, {"x": x}).values()
    np.testing.assert_allclose(found, model(x), atol=1e-5)


@needs_compiler
def test_every_form_is_exact(tmp_path) -> None:
    path, _ = written(tmp_path, kernel_size=3, strides=2, padding="same")
    x = np.random.default_rng(0).normal(size=(16, 5, 6, 3)).astype(np.float32)
    made = quantize(path, {"x": x}, effort="plain")
    assert made.facts.agreement.sqnr > 25
    assert not [r for r in made.trace.refusals if r.reason.startswith("stays float")]
    found = verify(made.save(tmp_path / "out"))
    assert found.equal and found.refused.keys() <= {*OWN_PROFILES}
