"""3-D convolutions, transposed ones and pools: read as 2-D ones, and quantized exactly."""

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
from tests.helpers.onnx_graphs import assert_like_runtime, f, imported, one_op
from tests.helpers.tf_graphs import assert_same_as_tf, graph_def_of, v1

SHAPE = (None, 5, 6, 7, 3)
rng = np.random.default_rng(0)


def conv(kernel=(3, 2, 3), strides=(1, 1, 1), padding="SAME", dilations=(1, 1, 1)):
    weights = rng.normal(size=(*kernel, 3, 4)).astype("f4")

    def function(x):
        steps, spread = [1, *strides, 1], [1, *dilations, 1]
        return tf.nn.conv3d(x, weights, steps, padding, dilations=spread) + np.float32([1, 2, 3, 4])

    return function


def pool(op, kernel, strides, padding):
    return lambda x: op(x, kernel, strides, padding)


TENSORFLOW = {
    "same": conv(),
    "valid": conv(padding="VALID"),
    "strides": conv(strides=(2, 3, 1)),
    "strides_valid": conv(kernel=(2, 3, 2), strides=(3, 1, 2), padding="VALID"),
    "one_plane": conv(kernel=(1, 3, 3)),
    "whole_depth": conv(kernel=(5, 1, 1), padding="VALID"),
    "even_kernel": conv(kernel=(4, 2, 2)),
    "max": pool(tf.nn.max_pool3d, (2, 3, 2), (1, 2, 2), "SAME"),
    "max_valid": pool(tf.nn.max_pool3d, 2, 2, "VALID"),
    "average": pool(tf.nn.avg_pool3d, (3, 2, 2), (2, 1, 2), "SAME"),
    "average_valid": pool(tf.nn.avg_pool3d, (2, 3, 1), (1, 2, 1), "VALID"),
}


@pytest.mark.parametrize("name", TENSORFLOW)
def test_it_computes_what_tensorflow_computes(name):
    build = TENSORFLOW[name]
    graph = assert_same_as_tf(graph_def_of(lambda: build(v1.placeholder("float32", SHAPE, "x"))))
    assert not opaque_kinds(graph)


def test_channels_first_are_read_too():
    """TensorFlow computes NCDHW on GPUs only, so the graph in NDHWC is the reference."""
    from qgraph.interpret import evaluate

    weights, x = rng.normal(size=(2, 2, 2, 3, 4)).astype("f4"), f(2, 5, 6, 7, 3)

    def graph(kind, shape, strides):
        def build():
            given = v1.placeholder("float32", shape, "x")
            return tf.raw_ops.Conv3D(
                input=given, filter=weights, strides=strides, padding="SAME", data_format=kind,
                name="y",
            )  # fmt: skip

        return load_graph_def(graph_def_of(build))

    last = graph("NDHWC", SHAPE, [1, 2, 1, 1, 1])
    first = graph("NCDHW", (None, 3, 5, 6, 7), [1, 1, 2, 1, 1])
    (wanted,) = evaluate(last, {"x": x}).values()
    (found,) = evaluate(first, {"x": np.moveaxis(x, -1, 1)}).values()
    np.testing.assert_allclose(np.moveaxis(found, 1, -1), wanted, atol=1e-5)


def test_open_sizes_stay_opaque():
    build = TENSORFLOW["same"]
    shape = (None, None, 6, 7, 3)
    graph = assert_same_as_tf(graph_def_of(lambda: build(v1.placeholder("float32", shape, "x"))))
    assert opaque_kinds(graph) == ["Conv3D"]


W = f(4, 3, 3, 2, 3)
ONNX = {
    "conv": one_op("Conv", f(2, 3, 5, 6, 7), W, f(4)),
    "pads": one_op("Conv", f(2, 3, 5, 6, 7), W, pads=[1, 0, 2, 0, 1, 1], strides=[2, 1, 2]),
    "dilations": one_op("Conv", f(2, 3, 6, 6, 7), W, dilations=[2, 1, 3], pads=[1] * 6),
    "same_upper": one_op("Conv", f(2, 3, 5, 6, 7), W, auto_pad="SAME_UPPER", strides=[2, 2, 2]),
    "same_lower": one_op("Conv", f(2, 3, 5, 6, 7), W, auto_pad="SAME_LOWER"),
    "max": one_op("MaxPool", f(2, 3, 5, 6, 7), kernel_shape=[2, 3, 2], strides=[1, 2, 2]),
    "max_pads": one_op(
        "MaxPool", f(2, 3, 5, 6, 7), kernel_shape=[2, 3, 2], pads=[1, 1, 0, 0, 1, 1]
    ),
    "average": one_op("AveragePool", f(2, 3, 5, 6, 7), kernel_shape=[2, 3, 2], strides=[2, 1, 1]),
    "average_pads": one_op(
        "AveragePool", f(2, 3, 5, 6, 7), kernel_shape=[3, 3, 3], pads=[1, 1, 1, 1, 1, 1]
    ),
    "average_counted": one_op(
        "AveragePool", f(2, 3, 5, 6, 7), kernel_shape=[2, 2, 2], count_include_pad=1
    ),
    "groups": one_op("Conv", f(2, 6, 5, 6, 7), f(4, 3, 2, 2, 2), f(4), group=2),
    "groups_strides": one_op(
        "Conv", f(2, 6, 5, 6, 7), f(9, 2, 3, 1, 2), group=3, strides=[2, 1, 2], pads=[1] * 6
    ),
    "depthwise": one_op("Conv", f(2, 4, 5, 6, 7), f(8, 1, 3, 3, 3), group=4, pads=[1] * 6),
    "depthwise_planes": one_op("Conv", f(2, 4, 5, 6, 7), f(8, 1, 1, 3, 3), f(8), group=4),
    "pointwise_groups": one_op("Conv", f(2, 4, 5, 6, 7), f(4, 1, 1, 1, 1), group=4),
    "ceiling": one_op(
        "MaxPool", f(2, 3, 5, 6, 7), kernel_shape=[2, 2, 2], strides=[2, 2, 2], ceil_mode=1
    ),
    "ceiling_pads": one_op(
        "MaxPool", f(2, 3, 5, 6, 7), kernel_shape=[2, 3, 2], strides=[3, 2, 2], ceil_mode=1,
        pads=[1, 0, 1, 0, 1, 1],
    ),
    "ceiling_average": one_op(
        "AveragePool", f(2, 3, 5, 6, 8), kernel_shape=[2, 2, 3], strides=[2, 3, 2], ceil_mode=1
    ),
    "counted": one_op(
        "AveragePool", f(2, 3, 5, 6, 7), kernel_shape=[2, 2, 2], pads=[1] * 6, count_include_pad=1
    ),
    "counted_ceiling": one_op(
        "AveragePool", f(2, 3, 5, 6, 7), kernel_shape=[3, 2, 2], strides=[2, 2, 3],
        pads=[1, 1, 0, 1, 0, 1], count_include_pad=1, ceil_mode=1,
    ),
}  # fmt: skip
LEFT = {
    "dilated_pool": one_op(
        "MaxPool", f(2, 3, 5, 6, 7), kernel_shape=[2, 2, 2], dilations=[1, 2, 1]
    ),
}
TRANSPOSED = {
    "strides": ([3, 2, 3], {"strides": [2, 1, 3]}),
    "no_strides": ([3, 2, 2], {}),
    "pads": ([3, 3, 4], {"strides": [2, 2, 2], "pads": [1, 0, 1, 1, 1, 2]}),
    "output_padding": ([3, 3, 2], {"strides": [2, 3, 2], "output_padding": [1, 2, 0]}),
    "groups": ([2, 2, 2], {"strides": [2, 2, 2], "group": 2}),
    "dilations": ([2, 3, 2], {"dilations": [2, 1, 3], "strides": [1, 2, 1]}),
    "output_shape": ([3, 3, 3], {"strides": [2, 2, 2], "output_shape": [8, 10, 11]}),
    "same": ([3, 3, 3], {"strides": [2, 2, 2], "auto_pad": "SAME_UPPER"}),
    "filter_within_strides": ([1, 2, 1], {"strides": [3, 3, 2], "output_padding": [2, 0, 1]}),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolutions_are_those_of_onnx_runtime(name):
    kernel, attrs = TRANSPOSED[name]
    per_group = 4 // attrs.get("group", 1)
    model = one_op("ConvTranspose", f(2, 6, 4, 5, 6), f(6, per_group, *kernel), f(4), **attrs)
    assert_like_runtime(model, {"x": f(2, 6, 4, 5, 6)})


def transposed(kernel, strides, padding, target):
    weights = rng.normal(size=(*kernel, 4, 3)).astype("f4")

    def function(x):
        sizes = tf.stack([tf.shape(x)[0], *target, 4])
        return tf.nn.conv3d_transpose(x, weights, sizes, [1, *strides, 1], padding)

    return function


@pytest.mark.parametrize(
    ("kernel", "strides", "padding", "target"),
    [
        ((3, 3, 3), (2, 2, 2), "SAME", (10, 12, 14)),
        ((3, 2, 4), (2, 1, 3), "SAME", (9, 6, 20)),
        ((2, 3, 2), (2, 3, 1), "VALID", (10, 18, 8)),
        ((2, 2, 1), (3, 2, 2), "VALID", (15, 12, 14)),
    ],
)
def test_transposed_convolutions_are_those_of_tensorflow(kernel, strides, padding, target):
    build = transposed(kernel, strides, padding, target)
    graph = assert_same_as_tf(graph_def_of(lambda: build(v1.placeholder("float32", SHAPE, "x"))))
    assert not opaque_kinds(graph)


@pytest.mark.parametrize("name", ONNX)
def test_it_computes_what_onnx_runtime_computes(name):
    model = ONNX[name]
    assert_like_runtime(model, {"x": f(*_shape(model))})


@pytest.mark.parametrize("name", LEFT)
def test_other_options_stay_float(name):
    model = LEFT[name]
    kind = model.graph.node[0].op_type
    assert opaque_kinds(imported(model)) == [kind]
    assert_like_runtime(model, {"x": f(*_shape(model))}, opaque=(kind,))


def _shape(model):
    return [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]


@needs_compiler
def test_every_form_is_exact(tmp_path):
    keras.utils.set_random_seed(0)
    x = keras.layers.Input((6, 8, 8, 2), name="x")
    h = keras.layers.Conv3D(4, 3, padding="same", bias_initializer="random_normal")(x)
    h = keras.layers.MaxPooling3D(2)(keras.layers.ReLU()(h))
    h = keras.layers.BatchNormalization()(keras.layers.Conv3D(4, 2, strides=(1, 2, 2))(h))
    h = keras.layers.AveragePooling3D((2, 1, 1))(keras.layers.ReLU()(h))
    h = keras.layers.Conv3DTranspose(3, 3, strides=2, padding="same")(h)
    h = keras.layers.Conv3D(6, 2, groups=3)(keras.layers.ReLU()(h))
    model = keras.Model(x, keras.layers.Dense(3)(keras.layers.Flatten()(h)))
    model.save(tmp_path / "model.h5")
    graph = load(tmp_path / "model.h5")
    assert not opaque_kinds(graph)
    data = {"x": rng.normal(size=(16, 6, 8, 8, 2)).astype("f4")}
    made = quantize(graph, data, effort="plain")
    assert made.facts.agreement.sqnr > 20
    assert not [r for r in made.trace.refusals if r.reason.startswith("stays float")]
    assert made.graph.users("x")[0].op == "quantize"
    found = verify(made.save(tmp_path / "out"))
    assert found.equal and found.refused.keys() <= {*OWN_PROFILES}
