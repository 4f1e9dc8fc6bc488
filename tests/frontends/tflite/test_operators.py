"""Every operator that is read: the graph computes what LiteRT computes."""

from functools import cache

import numpy as np
import pytest

pytest.importorskip("tflite", reason="pip install tflite")
pytest.importorskip("ai_edge_litert", reason="pip install ai-edge-litert")

import tensorflow as tf

from qgraph.frontends import load
from qgraph.frontends.tflite.operators import OPERATORS, control, recurrent, streaming
from tests.helpers.evaluate import random_feeds
from tests.helpers.tflite_files import (
    Written,
    assert_same_as_litert,
    converted,
    operators_of,
    written,
)

IMAGE, ROWS, SQUARE, OPEN = (1, 6, 6, 4), (2, 6), (2, 3, 4), (None, 3, 4)
rng = np.random.default_rng(0)


def numbers(*shape):
    return tf.constant(rng.standard_normal(shape).astype("float32"))


def slopes(count):
    return rng.uniform(-1, 1, count).astype("float32")


def indices(*values):
    return tf.constant(values, tf.int32)


raw, nn, math = tf.raw_ops, tf.nn, tf.math


def conv(x, **options):
    return nn.conv2d(x, numbers(3, 3, 4, 5), **{"strides": 1, "padding": "SAME", **options})


def depthwise(x, m=1, **options):
    options = {"strides": [1, 1, 1, 1], "padding": "SAME", **options}
    return nn.depthwise_conv2d(x, numbers(3, 3, 4, m), **options)


def resized(op, **options):
    return lambda x: op(images=x, size=indices(9, 5), **options)


def positive(x):
    return tf.abs(x) + 0.5


def on_whole_numbers(function):
    """A function of whole numbers, as float32."""
    return lambda x: tf.cast(function(tf.cast(x * 4, tf.int32)), tf.float32)


def chosen(condition):
    return lambda x, y: tf.where(condition(x, y), x * 2, y)


CASES = {
    "conv": ([IMAGE], conv),
    "conv_relu": ([IMAGE], lambda x: nn.relu(conv(x) + numbers(5))),
    "conv_relu6": ([IMAGE], lambda x: nn.relu6(conv(x, padding="VALID"))),
    "conv_relu_n1": ([IMAGE], lambda x: tf.maximum(tf.minimum(conv(x), 1.0), -1.0)),
    "conv_stride": ([IMAGE], lambda x: conv(x, strides=[2, 1])),
    "volume_transposed": (
        [(1, 3, 4, 5, 2)],
        lambda x: nn.conv3d_transpose(
            x, numbers(2, 3, 3, 4, 2), output_shape=[1, 6, 8, 10, 4], strides=2
        ),
    ),
    "conv_dilated": ([IMAGE], lambda x: conv(x, dilations=2)),
    "conv_of_volume": (
        [(2, 5, 6, 7, 3)],
        lambda x: nn.relu(
            nn.conv3d(x, numbers(3, 2, 3, 3, 4), (1, 2, 1, 2, 1), "SAME") + numbers(4)
        ),
    ),
    "depthwise": ([IMAGE], lambda x: depthwise(x) + numbers(4)),
    "depthwise_multiplier": ([IMAGE], lambda x: depthwise(x, 3, padding="VALID")),
    "depthwise_stride": ([IMAGE], lambda x: depthwise(x, strides=[1, 2, 2, 1])),
    "depthwise_dilated": ([IMAGE], lambda x: depthwise(x, dilations=[2, 2])),
    "transposed_conv": (
        [IMAGE],
        lambda x: nn.conv2d_transpose(x, numbers(3, 3, 5, 4), (1, 12, 12, 5), 2) + numbers(5),
    ),
    "transposed_valid": (
        [IMAGE],
        lambda x: nn.conv2d_transpose(x, numbers(2, 2, 5, 4), (1, 12, 12, 5), 2, "VALID"),
    ),
    "dense": ([ROWS], lambda x: nn.relu(x @ numbers(6, 3) + numbers(3))),
    "dense_open": ([(None, 6)], lambda x: x @ numbers(6, 3)),
    "dense_3d": ([SQUARE], lambda x: tf.tensordot(x, numbers(4, 3), 1) + numbers(3)),
    "matmul": ([SQUARE, (2, 4, 5)], tf.matmul),
    "matmul_turned": ([SQUARE, (2, 5, 4)], lambda x, y: tf.matmul(x, y, transpose_b=True)),
    "average_pool": ([IMAGE], lambda x: nn.avg_pool2d(x, 3, 2, "SAME")),
    "max_pool": ([IMAGE], lambda x: nn.relu(nn.max_pool2d(x, [2, 3], 1, "VALID"))),
    "bilinear": ([IMAGE], resized(raw.ResizeBilinear)),
    "bilinear_half": ([IMAGE], resized(raw.ResizeBilinear, half_pixel_centers=True)),
    "bilinear_corners": ([IMAGE], resized(raw.ResizeBilinear, align_corners=True)),
    "nearest": ([IMAGE], resized(raw.ResizeNearestNeighbor)),
    "nearest_half": ([IMAGE], resized(raw.ResizeNearestNeighbor, half_pixel_centers=True)),
    "nearest_corners": ([IMAGE], resized(raw.ResizeNearestNeighbor, align_corners=True)),
    "space_to_depth": ([IMAGE], lambda x: nn.space_to_depth(x, 2)),
    "depth_to_space": ([IMAGE], lambda x: nn.depth_to_space(x, 2)),
    "space_to_batch": ([IMAGE], lambda x: tf.space_to_batch(x, [2, 2], [[0, 0], [2, 0]])),
    "batch_to_space": ([(4, 3, 3, 2)], lambda x: tf.batch_to_space(x, [2, 2], [[0, 1], [1, 0]])),
    "add": ([ROWS, (6,)], lambda x, y: nn.relu(x + y)),
    "sub": ([ROWS, ROWS], tf.subtract),
    "mul": ([ROWS, ROWS], lambda x, y: nn.relu6(x * y)),
    "div": ([ROWS, ROWS], lambda x, y: x / positive(y)),
    "add_n": ([ROWS, ROWS], lambda x, y: tf.add_n([x, y, x])),
    "maximum": ([ROWS, ROWS], tf.maximum),
    "minimum": ([ROWS, ROWS], tf.minimum),
    "pow": ([ROWS], lambda x: tf.pow(positive(x), 1.7)),
    "squared_difference": ([ROWS, ROWS], math.squared_difference),
    **{
        f.__name__: ([ROWS], f)
        for f in (
            tf.abs,
            math.negative,
            tf.sign,
            tf.exp,
            tf.square,
            tf.sin,
            tf.cos,
            math.floor,
            math.ceil,
            tf.round,
            nn.relu,
            nn.relu6,
            nn.elu,
            tf.sigmoid,
            tf.tanh,
            nn.softmax,
            nn.log_softmax,
        )
    },
    "lrn": ([IMAGE], lambda x: nn.lrn(x, 1, bias=0.7, alpha=0.4, beta=0.6)),
    "log": ([ROWS], lambda x: math.log(positive(x))),
    "sqrt": ([ROWS], lambda x: tf.sqrt(positive(x))),
    "rsqrt": ([ROWS], lambda x: math.rsqrt(positive(x))),
    "leaky_relu": ([ROWS], lambda x: nn.leaky_relu(x, 0.3)),
    "relu_n1": ([ROWS], lambda x: tf.maximum(tf.minimum(x, 1.0), -1.0)),
    "hard_swish": ([ROWS], lambda x: x * nn.relu6(x + 3) * np.float32(1 / 6)),
    "gelu": ([ROWS], lambda x: nn.gelu(x)),
    "gelu_tanh": ([ROWS], lambda x: nn.gelu(x, approximate=True)),
    "equal": ([ROWS, ROWS], chosen(tf.equal)),
    "not_equal": ([ROWS, ROWS], chosen(tf.not_equal)),
    "greater": ([ROWS, ROWS], chosen(tf.greater)),
    "greater_equal": ([ROWS, ROWS], chosen(tf.greater_equal)),
    "less": ([ROWS, ROWS], chosen(tf.less)),
    "less_equal": ([ROWS, ROWS], chosen(tf.less_equal)),
    "logical_and": ([ROWS, ROWS], chosen(lambda x, y: (x > 0) & (y > 0))),
    "logical_or": ([ROWS, ROWS], chosen(lambda x, y: (x > 0) | ~(y > 0))),
    "select": ([ROWS, ROWS], lambda x, y: raw.Select(condition=x > 0, x=x, y=y)),
    "select_broadcast": ([ROWS, (6,)], lambda x, y: tf.where(y > 0, x, y)),
    "cast": ([ROWS], on_whole_numbers(lambda i: i + 1)),
    "concat": ([ROWS, (2, 3)], lambda x, y: tf.concat([x, y], 1)),
    "reshape": ([SQUARE], lambda x: tf.reshape(x, (4, 6))),
    "reshape_open": ([(None, 3, 4)], lambda x: tf.reshape(x, (-1, 12))),
    "reshape_computed": ([(None, 3, 4)], lambda x: tf.reshape(x, (tf.shape(x)[0], 4, 3))),
    "squeeze": ([(2, 1, 6, 1)], lambda x: tf.squeeze(x, [1]) + 1),
    "expand_dims_open": ([(None, 6)], lambda x: tf.expand_dims(x, 1)),
    "expand_dims_added": ([ROWS], lambda x: tf.expand_dims(x, 1) + 1),
    "transpose": ([SQUARE], lambda x: tf.transpose(x, (2, 0, 1))),
    "pad": ([ROWS], lambda x: tf.pad(x, [[0, 0], [1, 2]])),
    "pad_value": ([ROWS], lambda x: tf.pad(x, [[0, 1], [1, 0]], constant_values=2.5)),
    "reflect": ([IMAGE], lambda x: tf.pad(x, [[0, 0], [1, 2], [2, 1], [0, 0]], "REFLECT")),
    "symmetric": ([IMAGE], lambda x: tf.pad(x, [[0, 0], [1, 2], [2, 1], [0, 0]], "SYMMETRIC")),
    "slice": ([SQUARE], lambda x: tf.slice(x, [0, 1, 1], [-1, 2, 2])),
    "strided_slice": ([SQUARE], lambda x: x[:, ::2, 1:-1]),
    "strided_slice_axes": ([SQUARE], lambda x: x[1, ..., tf.newaxis]),
    "reversed_slice": ([SQUARE], lambda x: x[:, :, ::-1]),
    "split": ([ROWS], lambda x: tf.split(x, 3, 1)),
    "split_sizes": ([ROWS], lambda x: tf.split(x, [1, 3, 2], 1)),
    "gather": ([SQUARE], lambda x: tf.gather(x, indices(2, 0), axis=1)),
    "pack": ([ROWS, ROWS], lambda x, y: tf.stack([x, y], 1)),
    "unpack": ([SQUARE], lambda x: tf.unstack(x, axis=1)),
    "tile": ([ROWS], lambda x: tf.tile(x, (2, 3))),
    "broadcast_to": ([(1, 6)], lambda x: tf.broadcast_to(x, (3, 6))),
    "reverse": ([SQUARE], lambda x: tf.reverse(x, [1])),
    "zeros_like": ([(None, 6)], lambda x: x + tf.zeros_like(x)),
    "mean": ([IMAGE], lambda x: tf.reduce_mean(x, (1, 2))),
    "sum": ([IMAGE], lambda x: tf.reduce_sum(x, -1, keepdims=True)),
    "max": ([IMAGE], lambda x: tf.reduce_max(x, (1, 2), keepdims=True)),
    "min": ([ROWS], lambda x: tf.reduce_min(x, 1)),
    "argmax": ([ROWS], lambda x: tf.argmax(x, 1, tf.int32)),
    "argmin": ([ROWS], lambda x: tf.argmin(x, 1)),
    "cumsum": ([ROWS], lambda x: tf.cumsum(x, 1, exclusive=True, reverse=True)),
    "l2": ([ROWS], lambda x: nn.l2_normalize(x, -1)),
}


def ints(*values):
    return np.array(values, np.int32)


SCALAR, X = np.array(2, np.float32), -1
KEEP = {"options": "ReducerOptions", "fields": {"KeepDims": True}}


def reshaped(x, op, *inputs, **options):
    """A file that gives `x` a shape of one number, which an operator computes."""
    computed = Written(op, inputs, (1,), "int32", **options)
    return written(x, computed, Written("RESHAPE", (X, 0), (8,)))


# Operators that the converter folds, or never writes for a function as short as these.
BY_HAND = {
    "relu_0_1": written(ROWS, Written("RELU_0_TO_1", [X], ROWS)),
    "prelu": written(IMAGE, Written("PRELU", [X, slopes(4)], IMAGE)),
    "prelu_steep": written(IMAGE, Written("PRELU", [X, 3 * slopes(4)], IMAGE)),
    "squeeze": written(
        (2, 1, 6),
        Written("SQUEEZE", [X], ROWS, "float32", "SqueezeOptions", {"SqueezeDims": ints(1)}),
    ),
    "expand_dims": written(ROWS, Written("EXPAND_DIMS", [X, ints(1)], (2, 1, 6))),
    "logical_not": written(
        ROWS,
        Written("GREATER", [X, SCALAR], ROWS, "bool"),
        Written("LOGICAL_NOT", [0], ROWS, "bool"),
    ),
    "fill": written(
        ROWS, Written("FILL", [ints(2, 6), SCALAR], ROWS), Written("ADD", [X, 0], ROWS)
    ),
    "range": written(
        ROWS,
        Written("RANGE", [np.array(i, np.int32) for i in (1, 6, 2)], (3,), "int32"),
        Written("GATHER", [X, 0], (2, 3), "float32", "GatherOptions", {"Axis": 1}),
    ),
    "gather_of_each_row": written(
        ROWS,
        Written(
            "GATHER",
            [X, np.array([[5, 0], [1, 1]], np.int32)],
            (2, 2),
            "float32",
            "GatherOptions",
            {"BatchDims": 1, "Axis": 1},
        ),
    ),
    "floor_div": reshaped((2, 4), "FLOOR_DIV", ints(17), ints(2)),
    "floor_mod": reshaped((2, 4), "FLOOR_MOD", ints(17), ints(9)),
    "prod": reshaped((2, 4), "REDUCE_PROD", ints(2, 4), ints(0), **KEEP),
}


@cache
def file_of(name):
    if name in BY_HAND:
        return BY_HAND[name]
    shapes, function = CASES[name]
    return converted(function, shapes)


@pytest.mark.parametrize("name", [*CASES, *BY_HAND])
def test_an_operator_computes_what_litert_computes(name, tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(file_of(name))
    graph = load(path)
    assert_same_as_litert(graph, file_of(name), random_feeds(graph, batch=1))


def test_every_operator_that_is_read_was_tried():
    tried = set().union(*(operators_of(file_of(name)) for name in (*CASES, *BY_HAND)))
    others = (control, recurrent, streaming)  # in tests of their own
    elsewhere = {"DEQUANTIZE", "QUANTIZE"}.union(*(theme.OPERATORS for theme in others))
    missing = set(OPERATORS) - tried - elsewhere
    assert not missing, f"CASES has no file with {sorted(missing)}"
