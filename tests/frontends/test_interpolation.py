"""Interpolation as convolutions or products: equal to TensorFlow's, and exact in every form."""

from itertools import product

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from qgraph import load, quantize
from qgraph.frontends import load_graph_def
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.forms import OWN_PROFILES
from tests.helpers.graphs import opaque_kinds
from tests.helpers.tf_graphs import assert_same_as_tf, graph_def_of, v1

raw = tf.raw_ops
COORDINATES = {"asymmetric": {}, "half pixel": {"half_pixel_centers": True}}
COORDINATES["corners"] = {"align_corners": True}
SIZES = [
    *product([(4, 6)], [(8, 12), (15, 9), (4, 6), (2, 3), (7, 11), (1, 1), (40, 24), (7, 16)]),
    *product([(5, 3), (1, 7)], [(10, 6), (9, 5), (3, 7), (6, 4)]),
]


def resized(op, have, size, dtype="float32", **options):
    def build():
        images = v1.placeholder(dtype, (None, *have, 3), "x")
        return getattr(raw, op)(images=images, size=list(size), **options)

    return graph_def_of(build)


@pytest.mark.parametrize("where", COORDINATES)
@pytest.mark.parametrize("op", ["ResizeBilinear", "ResizeBicubic"])
def test_it_is_that_of_tensorflow(op, where):
    for have, size in SIZES:
        graph = assert_same_as_tf(resized(op, have, size, **COORDINATES[where]), 2e-5)
        assert opaque_kinds(graph) == [], (have, size)


def test_results_are_float32_for_other_inputs():
    assert_same_as_tf(resized("ResizeBilinear", (3, 4), (6, 8), "float64"))
    assert_same_as_tf(resized("ResizeBilinear", (3, 4), (6, 8), "uint8"))


@pytest.mark.parametrize(
    ("where", "have", "size", "ops"),
    [
        ("half pixel", (4, 6), (8, 12), ["pad", "concat", "depthwise_conv2d", "depth_to_space"]),
        ("asymmetric", (4, 6), (8, 12), ["pad", "concat", "depthwise_conv2d", "depth_to_space"]),
        ("half pixel", (4, 6), (2, 3), ["depthwise_conv2d"]),
        ("corners", (16, 16), (32, 32), ["reshape", "batch_matmul", "reshape", "batch_matmul"]),
        ("asymmetric", (4, 6), (4, 6), []),
    ],
)  # fmt: skip
def test_common_ratios_take_few_ops(where, have, size, ops):
    graph = load_graph_def(resized("ResizeBilinear", have, size, **COORDINATES[where]))
    besides = ("const", "input", "identity", "slice")
    assert [n.op for n in graph.topological() if n.op not in besides] == ops


def test_powers_of_two_have_exact_weights():
    for factor in (2, 4, 8):
        size = (4 * factor, 4 * factor)
        graph = load_graph_def(resized("ResizeBilinear", (4, 4), size, **COORDINATES["half pixel"]))
        (layer,) = [n for n in graph.nodes.values() if n.op == "depthwise_conv2d"]
        codes = np.asarray(graph.constant(layer.inputs[1])) * (2 * factor) ** 2
        assert np.array_equal(codes, np.rint(codes))
        assert layer.attrs["pool"]


BETWEEN = {
    "2": lambda: keras.layers.UpSampling2D(2, interpolation="bilinear"),
    "3 and 2": lambda: keras.layers.UpSampling2D((3, 2), interpolation="bilinear"),
    "larger": lambda: keras.layers.Resizing(9, 7),
    "smaller": lambda: keras.layers.Resizing(4, 3),
    "cubic": lambda: keras.layers.UpSampling2D(2, interpolation="bicubic"),
    "nearest": lambda: keras.layers.Resizing(11, 11, interpolation="nearest"),
}


@needs_compiler
@pytest.mark.parametrize("case", BETWEEN)
def test_between_layers_it_is_exact_in_every_form(tmp_path, case) -> None:
    keras.utils.set_random_seed(0)
    x = keras.layers.Input((6, 6, 3), name="x")
    h = keras.layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    y = keras.layers.Conv2D(2, 1)(BETWEEN[case]()(h))
    keras.Model(x, y).save(tmp_path / "model.h5")
    data = np.random.default_rng(0).normal(size=(16, 6, 6, 3)).astype(np.float32)
    assert opaque_kinds(load(tmp_path / "model.h5")) == []
    made = quantize(tmp_path / "model.h5", {"x": data}, effort="plain")
    assert made.facts.agreement.sqnr > 25
    assert not [r for r in made.trace.refusals if r.reason.startswith("stays float")]
    found = verify(made.save(tmp_path / "out"))
    assert found.equal and found.refused.keys() <= {*OWN_PROFILES}
