"""Every importer, in many forms: the imported graph computes what TensorFlow computes."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import UnsupportedError
from qgraph.frontends import load_graph_def
from qgraph.interpret import evaluate
from qgraph.ir.ops.movement import nearest
from tests.helpers.graphs import opaque_kinds
from tests.helpers.tf_graphs import assert_same_as_tf, graph_def_of, v1
from tests.helpers.tf_layers import (
    FIXED,
    IMAGE,
    MATRIX,
    batch_norm,
    conv,
    depthwise,
    pool,
    positive,
    raw,
    resize,
    weights,
)

CASES = {
    "conv_same": (IMAGE, conv),
    "conv_valid": (IMAGE, lambda x: conv(x, padding="VALID")),
    "conv_stride": (IMAGE, lambda x: conv(x, strides=[1, 2, 2, 1])),
    "conv_even_kernel": (IMAGE, lambda x: conv(x, k=2, strides=[1, 2, 2, 1])),
    "conv_1x1_stride": (IMAGE, lambda x: conv(x, k=1, strides=[1, 2, 2, 1])),
    "conv_dilated": (IMAGE, lambda x: conv(x, dilations=[1, 2, 2, 1])),
    "conv_explicit": (
        IMAGE,
        lambda x: conv(x, padding="EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0]),
    ),
    "conv_grouped": (IMAGE, lambda x: conv(x, out=6, groups=2)),
    "depthwise": (IMAGE, depthwise),
    "depthwise_multiplier": (IMAGE, lambda x: depthwise(x, 3, padding="VALID")),
    "depthwise_stride": (IMAGE, lambda x: depthwise(x, strides=[1, 2, 2, 1])),
    "matmul": (MATRIX, lambda x: x @ weights(x, 6, 3)),
    "matmul_b": (MATRIX, lambda x: tf.matmul(x, weights(x, 3, 6), transpose_b=True)),
    "matmul_a": ((5, 6), lambda x: tf.matmul(x, weights(x, 5, 3), transpose_a=True)),
    "matmul_both": ((3, 6), lambda x: tf.matmul(x, x + 1, transpose_b=True)),
    "matmul_read": (
        MATRIX,
        lambda x: tf.matmul(x, tf.identity(weights(x, 3, 6)), transpose_b=True),
    ),
    "batch_matmul": (
        (None, 3, 6),
        lambda x: raw.BatchMatMulV2(x=x, y=weights(x, 6, 2)),
    ),
    "batch_matmul_adj": (MATRIX, lambda x: raw.BatchMatMulV2(x=x, y=weights(x, 2, 6), adj_y=True)),
    "batch_matmul_3d_adj": (
        (None, 3, 6),
        lambda x: raw.BatchMatMulV2(x=x, y=weights(x, 2, 6), adj_y=True),
    ),
    "bias_add": (IMAGE, lambda x: tf.nn.bias_add(x, weights(x, 4))),
    "bias_add_v1": (MATRIX, lambda x: raw.BiasAddV1(value=x, bias=weights(x, 6))),
    "bias_add_nchw": (IMAGE, lambda x: tf.nn.bias_add(x, weights(x, 8), data_format="NCHW")),
    "bias_add_nchw_3d": ((2, 3, 4), lambda x: tf.nn.bias_add(x, weights(x, 3), data_format="NCHW")),
    "arithmetic": (
        IMAGE,
        lambda x: [x + 2, raw.Add(x=x, y=x), x - 3, 3 - x, x * weights(x, 4),
                   tf.maximum(x, 0.5 * x), tf.minimum(x, 0), x / 3, raw.Div(x=x, y=positive(x)),
                   tf.math.squared_difference(x, 1), tf.pow(positive(x), 1.5)],
    ),
    "unary": (
        MATRIX,
        lambda x: [-x, abs(x), tf.exp(x), tf.math.log(positive(x)), tf.sqrt(positive(x)),
                   tf.math.rsqrt(positive(x)), tf.square(x), raw.Reciprocal(x=positive(x)),
                   raw.Inv(x=positive(x)), tf.floor(x)],
    ),
    "comparisons": (
        MATRIX,
        lambda x: [
            tf.cast(op(tf.floor(x), [-1.0, 0.0, 1.0, np.nan, np.inf, 0.0]), x.dtype)
            for op in (tf.greater, tf.greater_equal, tf.less, tf.less_equal, tf.equal, tf.not_equal)
        ],
    ),
    "logic": (
        MATRIX,
        lambda x: [
            *(tf.cast(flags, x.dtype) for flags in (
                tf.logical_and(x > 0, x < 1), tf.logical_or(x > 1, x < 0), tf.logical_not(x > 0),
                tf.not_equal(x > 0, x < 1), tf.math.is_nan(tf.sqrt(x)),
            )),
            raw.SelectV2(condition=x[:, :1] > 0, t=x, e=tf.cast(7, x.dtype)),
            raw.Select(condition=x > 0, x=x, y=-x),
        ],
    ),
    "cast_int": (MATRIX, lambda x: tf.cast(tf.cast(x * 3, tf.int32), x.dtype)),
    "add_n": (MATRIX, lambda x: [raw.AddN(inputs=[x] * n + [x - 1]) for n in range(3)]),
    "activations": (
        MATRIX,
        lambda x: [tf.nn.relu(x), tf.nn.relu6(x * 4), tf.nn.leaky_relu(x), tf.nn.leaky_relu(x, 0.3),
                   tf.nn.elu(x), tf.nn.selu(x), tf.sigmoid(x), tf.tanh(x), tf.nn.softplus(x),
                   tf.nn.softsign(x), raw.Softmax(logits=x), raw.LogSoftmax(logits=x)],
    ),
    "max_pool_same": (IMAGE, lambda x: pool(raw.MaxPool, x, 3, 2, "SAME")),
    "max_pool_valid": (IMAGE, lambda x: pool(raw.MaxPool, x, 2, 2, "VALID")),
    "max_pool_explicit": (
        IMAGE,
        lambda x: pool(raw.MaxPool, x, 3, 2, "EXPLICIT",
                       explicit_paddings=[0, 0, 1, 0, 1, 1, 0, 0]),
    ),
    "max_pool_v2": (
        IMAGE,
        lambda x: raw.MaxPoolV2(input=x, ksize=[1, 2, 3, 1], strides=[1, 1, 2, 1], padding="SAME"),
    ),
    "avg_pool_same": (IMAGE, lambda x: pool(raw.AvgPool, x, 3, 2, "SAME")),
    "avg_pool_valid": (IMAGE, lambda x: pool(raw.AvgPool, x, 2, 1, "VALID")),
    "reductions": (
        IMAGE,
        lambda x: [tf.reduce_mean(x, [1, 2]), tf.reduce_mean(x, [-3, -2], keepdims=True),
                   tf.reduce_sum(x, 3), tf.reduce_max(x, [1]), tf.reduce_mean(x, -1)],
    ),
    "max_of_integers": (MATRIX, lambda x: tf.reduce_max(tf.cast(x * 9, tf.int32), 1)),
    "mean_of_all": (FIXED, tf.reduce_mean),
    "argmax": (IMAGE, lambda x: [tf.argmax(x, -1), tf.argmax(x, 1, output_type=tf.int32)]),
    "concat": (IMAGE, lambda x: [tf.concat([x, x + 1, x], 3), tf.concat([x, x], -2)]),
    "concat_v1": (IMAGE, lambda x: raw.Concat(concat_dim=1, values=[x, x * 2])),
    "pad": (IMAGE, lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 3], [0, 0]])),
    "pad_v2": (IMAGE, lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 3], [1, 0]], constant_values=-1.5)),
    "pad_reflect": (IMAGE, lambda x: tf.pad(x, [[0, 0], [1, 2], [2, 3], [0, 0]], "REFLECT")),
    "pad_symmetric": (IMAGE, lambda x: tf.pad(x, [[0, 0], [1, 2], [2, 3], [0, 0]], "SYMMETRIC")),
    "reshape": (IMAGE, lambda x: [tf.reshape(x, [-1, 224]), tf.reshape(x, [-1, 8, 28])]),
    "squeeze": ((None, 1, 6, 1), lambda x: [tf.squeeze(x, [1]), tf.squeeze(x, [1, -1])]),
    "squeeze_all": ((2, 1, 6, 1), tf.squeeze),
    "expand_dims": (MATRIX, lambda x: [tf.expand_dims(x, 1), tf.expand_dims(x, -1)]),
    "transpose": (IMAGE, lambda x: [tf.transpose(x, [0, 3, 1, 2]), tf.transpose(x, [0, 2, 1, 3])]),
    "slice": (IMAGE, lambda x: [tf.slice(x, [0, 1, 2, 0], [-1, 3, -1, 4])]),
    "strided_slice": (
        IMAGE,
        lambda x: [x[:, 1:5], x[:, ::2, ::-1], x[:, 3], x[:, -1], x[..., 1], x[:, tf.newaxis, 2:],
                   x[:, 1, ..., tf.newaxis], x[..., -3:-1], x[:, 100:], x[tf.newaxis, :, 2, :, 1],
                   x[:1], x[0], x[:, 7:2:-2], x[:, 0:-9:-1]],
    ),
    "split": (IMAGE, lambda x: [tf.split(x, 2, 3), tf.split(x, 4, 1)[2], tf.split(x, 1, -1)]),
    "split_v": (IMAGE, lambda x: [tf.split(x, [1, 2, 1], 3), tf.split(x, [3, -1], 1)]),
    "unstack": (IMAGE, lambda x: [tf.unstack(x, axis=3), tf.unstack(x, axis=-2)[4]]),
    "stack": (MATRIX, lambda x: [tf.stack([x, x + 1], 1), tf.stack([x, x, x], -1), tf.stack([x])]),
    "tile_one": (MATRIX, lambda x: tf.tile(x, [1, 1])),
    "tile": (IMAGE, lambda x: [tf.tile(x, [1, 2, 1, 3]), tf.repeat(x, 2, axis=1)]),
    "broadcast_to": (FIXED, lambda x: [tf.broadcast_to(x[:1, :, :1], [3, *x.shape]),
                                       tf.broadcast_to(x, x.shape)]),
    "gather": (
        IMAGE,
        lambda x: [tf.gather(x, [3, 1, 1, 0], axis=1), tf.gather(x, 2, axis=-1),
                   tf.gather(x, [[1, 0], [2, 2]], axis=3)],
    ),
    "reverse": (IMAGE, lambda x: [tf.reverse(x, [1]), tf.reverse(x, [-1, 1, 2])]),
    "roll": (IMAGE, lambda x: [tf.roll(x, 3, 1), tf.roll(x, [1, -2], [2, -1])]),
    "cumsum": (
        IMAGE,
        lambda x: [tf.cumsum(x, 1), tf.cumsum(x, -1, exclusive=True),
                   tf.cumsum(x, 2, reverse=True)],
    ),
    "div_no_nan": (MATRIX, lambda x: tf.math.divide_no_nan(x, tf.nn.relu(x))),
    "functions": (
        MATRIX,
        lambda x: [tf.math.ceil(x), tf.round(x), tf.math.rint(x), tf.sign(x), tf.sin(x), tf.cos(x),
                   tf.tan(x), tf.asin(x / (1 + abs(x))), tf.acos(x / (1 + abs(x))), tf.atan(x),
                   tf.sinh(x), tf.cosh(x), tf.asinh(x), tf.acosh(1 + abs(x)),
                   tf.atanh(x / (1 + abs(x)))],
    ),
    "min": (IMAGE, lambda x: [tf.reduce_min(x, 1), tf.reduce_min(x, [1, 2], keepdims=True)]),
    "argmin": (IMAGE, lambda x: [tf.argmin(x, -1), tf.argmin(x, 1, output_type=tf.int32)]),
    "filled_like": (
        MATRIX, lambda x: [tf.where(x > 0, x, tf.zeros_like(x)), x + tf.ones_like(x)]
    ),
    "resize_up": (IMAGE, lambda x: resize(x, [16, 14])),
    "resize_odd": (IMAGE, lambda x: resize(x, [5, 11])),
    "resize_half_pixel": (IMAGE, lambda x: resize(x, [13, 5], half_pixel_centers=True)),
    "resize_corners": (IMAGE, lambda x: resize(x, [13, 5], align_corners=True)),
    "space_to_depth": ((None, 8, 6, 4), lambda x: tf.nn.space_to_depth(x, 2)),
    "depth_to_space": (IMAGE, lambda x: tf.nn.depth_to_space(x, 2)),
    "atrous": (
        (None, 8, 8, 4),
        lambda x: tf.batch_to_space(
            conv(tf.space_to_batch(x, [2, 2], [[2, 2], [2, 2]]), padding="VALID"),
            [2, 2], [[0, 0], [0, 0]],
        ),
    ),
    "space_to_batch_margins": (
        IMAGE, lambda x: tf.batch_to_space(tf.space_to_batch(x, [2, 3], [[0, 0], [1, 1]]), [2, 3],
                                           [[1, 2], [0, 1]]),
    ),
    "space_to_batch_v1": (
        (None, 8, 6, 4),
        lambda x: raw.SpaceToBatch(input=x, paddings=[[0, 0], [0, 0]], block_size=2),
    ),
    "identities": (
        MATRIX,
        lambda x: [tf.identity_n([x, x + 1]), tf.stop_gradient(x), raw.PreventGradient(input=x),
                   tf.debugging.check_numerics(x, "bad"), raw.Snapshot(input=x)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_op(case, dtype):
    shape, build = CASES[case]
    graph_def = graph_def_of(lambda: build(v1.placeholder(dtype, shape, "x")))
    graph = assert_same_as_tf(graph_def, 1e-5 if dtype == "float32" else 1e-12)
    assert opaque_kinds(graph) == []


@pytest.mark.parametrize("how", ["", "half_pixel_centers", "align_corners"])
def test_nearest_neighbours_are_those_of_float32(how):
    """A position like 1/2 of 98 is rounded differently in float32 and in float64."""
    for size, out in [(2, 98), (3, 123), (6, 123), (2, 41), (2, 245), (2, 83), (30, 55), (36, 61)]:
        image = np.arange(size, dtype=np.float32).reshape(1, size, 1, 1)
        options = {how: True} if how else {}
        wanted = tf.raw_ops.ResizeNearestNeighbor(images=image, size=[out, 1], **options)
        found = nearest(size, out, how == "align_corners", how == "half_pixel_centers")
        assert np.array_equal(found, np.ravel(wanted)), (size, out)


def test_transposed_weights_behind_a_read_are_turned_on_import():
    graph = assert_same_as_tf(graph_def_of(lambda: CASES["matmul_read"][1](
        v1.placeholder("float32", MATRIX, "x"))))  # fmt: skip
    assert [n.op for n in graph.topological()] == ["input", "const", "matmul", "identity"]


def test_dilated_depthwise():
    """TensorFlow's own kernel has no dilations on a CPU: the reference goes through batches."""
    graph = load_graph_def(
        graph_def_of(
            lambda: depthwise(v1.placeholder("float64", FIXED, "x"), dilations=[1, 2, 2, 1])
        )
    )
    x = np.random.default_rng(0).standard_normal(FIXED)
    w = weights(tf.constant(x), 3, 3, 4, 1)
    expected = tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME", dilations=[2, 2])
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], expected, atol=1e-12)


# -- batch norm -----------------------------------------------------------------------------

BATCH_NORMS = {"v1": raw.FusedBatchNorm, "v2": raw.FusedBatchNormV2, "v3": raw.FusedBatchNormV3}


@pytest.mark.parametrize("version", BATCH_NORMS)
def test_batch_norm(version):
    op = BATCH_NORMS[version]
    graph_def = graph_def_of(lambda: batch_norm(op, v1.placeholder("float32", IMAGE, "x"))[:3])
    graph = assert_same_as_tf(graph_def)
    assert graph.producer(graph.nodes["y"].inputs[0]).attrs["epsilon"] == pytest.approx(0.01)


@pytest.mark.parametrize("scaled", [True, False])
def test_batch_norm_of_early_graphs(scaled):
    """TensorFlow runs this op only in graphs of producers that had it."""

    def build():
        v1.get_default_graph().graph_def_versions.producer = 8
        v1.placeholder("float32", IMAGE, "x")
        for i, name in enumerate(("mean", "variance", "beta", "gamma")):
            tf.constant(np.linspace(0.1, 2, 4) + i, tf.float32, name=name)
        return []

    graph_def = graph_def_of(build)
    node = graph_def.node.add(name="bn", op="BatchNormWithGlobalNormalization")
    node.input.extend(["x", "mean", "variance", "beta", "gamma"])
    node.attr["T"].type = tf.float32.as_datatype_enum
    node.attr["variance_epsilon"].f = 0.01
    node.attr["scale_after_normalization"].b = scaled
    graph_def.versions.producer = 8
    assert "batch_norm" in {n.op for n in assert_same_as_tf(graph_def).nodes.values()}


@pytest.mark.parametrize("batch", [2, None])
def test_batch_norm_in_training_mode_is_refused_by_its_layer(batch):
    with pytest.raises(UnsupportedError, match=r"^body/norm: this batch norm runs in training"):
        load_graph_def(graph_def_of(lambda: norm_in_training(batch)))


def test_norm_in_training_mode_of_one_sample_is_opaque():
    graph = assert_same_as_tf(graph_def_of(lambda: norm_in_training(1)), 1e-4)
    assert opaque_kinds(graph) == ["FusedBatchNormV3"]


def norm_in_training(batch):
    x = v1.placeholder("float32", (batch, 3, 3, 4), "x")
    one = tf.ones(4)
    return raw.FusedBatchNormV3(
        x=x, scale=one, offset=one, mean=[], variance=[], is_training=True,
        name="body/norm/FusedBatchNormV3",
    )[0]  # fmt: skip
