"""Constants of one repeated value, with far more elements than the op can use: loading stays quick.

Such a constant is a view of one number, so that it takes a few bytes of a file, and no memory until
something walks over it.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import QGraphError
from qgraph.frontends import load_graph_def
from tests.helpers.damage import too_long
from tests.helpers.tf_graphs import graph_def_of, v1

SECONDS = 20  # milliseconds are usual; a loop over 2^27 elements takes minutes
FIELDS = {"int32": "int_val", "float32": "float_val", "int64": "int64_val", "bool": "bool_val"}
WINDOW = np.ones((2, 2, 3, 2), np.float32)
OPS = {
    "Pad": lambda x, image: tf.raw_ops.Pad(input=x, paddings=[[0, 0], [1, 1]]),
    "PadV2": lambda x, image: tf.raw_ops.PadV2(
        input=x, paddings=[[0, 0], [1, 1]], constant_values=1.0
    ),
    "MirrorPad": lambda x, image: tf.raw_ops.MirrorPad(
        input=x, paddings=[[0, 0], [1, 1]], mode="REFLECT"
    ),
    "SpaceToBatchND": lambda x, image: tf.raw_ops.SpaceToBatchND(
        input=image, block_shape=[2, 2], paddings=[[0, 0], [0, 0]]
    ),
    "BatchToSpaceND": lambda x, image: tf.raw_ops.BatchToSpaceND(
        input=image, block_shape=[2, 2], crops=[[0, 0], [0, 0]]
    ),
    "BatchToSpace": lambda x, image: tf.raw_ops.BatchToSpace(
        input=image, block_size=2, crops=[[0, 0], [0, 0]]
    ),
    "Tile": lambda x, image: tf.raw_ops.Tile(input=x, multiples=[1, 2]),
    "GatherV2": lambda x, image: tf.raw_ops.GatherV2(params=x, indices=[0, 1], axis=1),
    "StridedSlice": lambda x, image: x[:, 1:2],
    "Slice": lambda x, image: tf.raw_ops.Slice(input=x, begin=[0, 1], size=[-1, 1]),
    "Mean": lambda x, image: tf.raw_ops.Mean(input=x, axis=[1]),
    "Transpose": lambda x, image: tf.raw_ops.Transpose(x=x, perm=[1, 0]),
    "Reshape": lambda x, image: tf.raw_ops.Reshape(tensor=x, shape=[-1, 2, 2]),
    "SplitV": lambda x, image: tf.raw_ops.SplitV(
        value=x, size_splits=[1, 3], axis=1, num_split=2
    ),
    "ResizeNearestNeighbor": lambda x, image: tf.raw_ops.ResizeNearestNeighbor(
        images=image, size=[8, 8]
    ),
    "Conv2D": lambda x, image: tf.raw_ops.Conv2D(
        input=image, filter=WINDOW, strides=[1] * 4, padding="SAME"
    ),
    "Conv2DBackpropInput": lambda x, image: tf.raw_ops.Conv2DBackpropInput(
        input_sizes=[1, 8, 8, 3], filter=WINDOW, out_backprop=image[:1, :, :, :2],
        strides=[1, 2, 2, 1], padding="VALID",
    ),
    "MatMul": lambda x, image: tf.raw_ops.MatMul(a=x, b=np.ones((4, 2), np.float32)),
    "BiasAdd": lambda x, image: tf.raw_ops.BiasAdd(value=x, bias=np.ones(4, np.float32)),
    "SelectV2": lambda x, image: tf.raw_ops.SelectV2(
        condition=[True, False, True, True], t=x, e=[1.0, 2.0, 3.0, 4.0]
    ),
    "Fill": lambda x, image: x + tf.raw_ops.Fill(dims=[1, 4], value=1.0),
    "Range": lambda x, image: x + tf.raw_ops.Range(start=0.0, limit=4.0, delta=1.0),
    "TopKV2": lambda x, image: tf.raw_ops.TopKV2(input=x, k=2),
}  # fmt: skip


@contextmanager
def within(seconds: int) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def make_giant(tensor, sizes):
    """The first element of a constant, repeated in every place of `sizes`."""
    value = tf.make_ndarray(tensor).ravel()[0]
    tensor.Clear()
    tensor.dtype = tf.as_dtype(value.dtype).as_datatype_enum
    getattr(tensor, FIELDS[str(value.dtype)]).append(value.item())
    for size in sizes:
        tensor.tensor_shape.dim.add().size = size


@pytest.mark.parametrize("op", OPS)
def test_loading_does_not_walk_over_a_giant(op):
    def network():
        x = v1.placeholder("float32", (None, 4), "x")
        return OPS[op](x, v1.placeholder("float32", (None, 4, 4, 3), "image"))

    original = graph_def_of(network)
    constants = [node.name for node in original.node if node.op == "Const"]
    assert constants
    for name in constants:
        kept = next(node for node in original.node if node.name == name)
        rank = max(1, len(kept.attr["value"].tensor.tensor_shape.dim))
        pairs = [2**26, 2]  # as in paddings
        for sizes in ([2**27], pairs if rank == 2 else [2 ** (27 // rank)] * rank):
            changed = type(original).FromString(original.SerializeToString())
            constant = next(node for node in changed.node if node.name == name)
            make_giant(constant.attr["value"].tensor, sizes)
            with within(SECONDS):
                try:
                    load_graph_def(changed)
                except QGraphError as error:
                    assert error.message
