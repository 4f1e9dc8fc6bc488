"""Transposed convolutions: read, with any number of samples, and quantized exactly."""

import numpy as np
import onnx
import pytest
import tf_keras as keras
from onnx import helper

from qgraph import load, quantize
from qgraph.interpret import evaluate
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.forms import OWN_PROFILES, needs_tool
from tests.helpers.onnx_graphs import model_of


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


def keras_decoder(folder):
    """Two halves of a decoder: bias and ReLU; batch norm and leaky ReLU; unequal strides."""
    keras.utils.set_random_seed(0)
    normal = {"gamma_initializer": "random_normal", "moving_mean_initializer": "random_normal"}
    x = keras.layers.Input((5, 6, 3), name="x")
    h = keras.layers.Conv2DTranspose(4, 3, 2, "same", bias_initializer="ones")(x)
    h = keras.layers.ReLU()(keras.layers.Conv2D(4, 1)(h))
    h = keras.layers.Conv2DTranspose(5, (3, 4), (1, 2), "same", bias_initializer="ones")(h)
    h = keras.layers.LeakyReLU(0.25)(keras.layers.BatchNormalization(**normal)(h))
    keras.Model(x, keras.layers.Conv2D(2, 1)(h)).save(folder / "model.h5")
    return folder / "model.h5", (5, 6, 3)


def onnx_decoder(folder):
    """A bias of its own, one behind the op, a batch norm and ReLU."""
    rng = np.random.default_rng(0)

    def f(*shape):
        return rng.uniform(0.2, 1, shape).astype(np.float32) * rng.choice([-1, 1], shape)

    make = helper.make_node
    nodes = [
        make("ConvTranspose", ["x", "w0"], ["up"], strides=[2, 2], pads=[1, 1, 0, 0]),
        make("Add", ["up", "b0"], ["biased"]),
        make("Relu", ["biased"], ["h"]),
        make("ConvTranspose", ["h", "w1", "b1"], ["wide"], strides=[2, 1]),
        make("BatchNormalization", ["wide", "gamma", "beta", "mean", "var"], ["norm"]),
        make("Relu", ["norm"], ["n"]),
        make("Conv", ["n", "w2", "b2"], ["y"]),
    ]
    constants = {
        "w0": f(3, 4, 3, 3), "b0": f(4, 1, 1) + 3, "w1": f(4, 2, 2, 2), "b1": f(2), "gamma": f(2),
        "beta": f(2), "mean": f(2), "var": np.abs(f(2)), "w2": f(2, 2, 1, 1), "b2": f(2),
    }  # fmt: skip
    constants = {name: array.astype(np.float32) for name, array in constants.items()}
    model = model_of(nodes, {"x": (1, 3, 5, 6)}, ("y",), constants)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx", (3, 5, 6)


@needs_compiler
def test_every_form_is_exact(tmp_path) -> None:
    path, _ = written(tmp_path, kernel_size=3, strides=2, padding="same")
    x = np.random.default_rng(0).normal(size=(16, 5, 6, 3)).astype(np.float32)
    made = quantize(path, {"x": x}, effort="plain")
    assert made.facts.agreement.sqnr > 25
    assert not [r for r in made.trace.refusals if r.reason.startswith("stays float")]
    found = verify(made.save(tmp_path / "out"))
    assert found.equal and found.refused.keys() <= {*OWN_PROFILES}


@needs_compiler
@needs_tool("tflite")
@pytest.mark.parametrize("reader", [keras_decoder, onnx_decoder])
def test_tflm_with_16_bits_has_the_whole_decoder(tmp_path, reader) -> None:
    """TFLM rounds sums outside of layers in another way, so every bias must be in a layer."""
    path, shape = reader(tmp_path)
    x = np.random.default_rng(0).normal(size=(16, *shape)).astype(np.float32)
    made = quantize(path, {"x": x}, effort="plain", profile="tflm-int16x8")
    assert made.facts.agreement.sqnr > 35
    found = verify(made.save(tmp_path / "out"))
    assert found.equal and {"c", "onnx-integer", "tensorflow"} <= found.compared.tallies.keys()
    assert "tflite" not in found.refused
    kinds = [n.op for n in found.network.graph.topological()]
    assert kinds.count("conv2d") == kinds.count("bias_add") and "depthwise_conv2d" not in kinds
