"""The gradient of a max pool from the codes of its input: the same numbers as TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import QuantSpec, Role
from qgraph.train import fused
from qgraph.train.compact import InputCodes, code_ops, pool_keeping_codes, separate_windows
from qgraph.train.forward import piece_of

needs_ops = pytest.mark.skipif(code_ops() is None, reason="the fused ops are not built")

# Image, channels, window, strides.
CASES = [
    ((8, 8), 5, (2, 2), (2, 2)),
    ((9, 11), 64, (2, 2), (2, 2)),  # a row and a column are in no window
    ((10, 9), 3, (1, 2), (3, 2)),
    ((6, 6), 33, (3, 2), (3, 3)),
    ((5, 4), 7, (1, 1), (1, 1)),
    ((40, 40), 16, (2, 2), (2, 2)),
]


def pool_of(image, channels, window, strides, padding="valid") -> tuple[Graph, Node]:
    graph = Graph("pool")
    x = graph.input("x", "float32", (None, *image, channels))
    attrs = {"ksize": window, "strides": strides, "padding": padding}
    graph.outputs["y"] = graph.add("max_pool", x, name="pool", attrs=attrs)
    return graph, graph.nodes["pool"]


def gradients(piece, x: np.ndarray) -> list[np.ndarray]:
    @tf.function(autograph=False)
    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            (y,) = piece(x)
            loss = tf.reduce_sum(tf.sin(y + tf.cumsum(tf.ones_like(y), axis=3)))
        return y, tape.gradient(loss, x)

    return [found.numpy() for found in both(tf.constant(x))]


@needs_ops
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("bits", [2, 8])
@pytest.mark.parametrize("case", CASES)
def test_the_first_of_the_largest_gets_the_gradient(case, bits, signed) -> None:
    """With 2 bits, nearly every window has several largest elements."""
    graph, node = pool_of(*case)
    windows = separate_windows(graph, node)
    assert windows is not None
    spec = QuantSpec(bits, signed, Role.ACTIVATION, 3)
    rng = np.random.default_rng(bits)
    codes = rng.integers(spec.lo, spec.hi + 1, (3, *case[0], case[1]))
    x = (codes / 8).astype(np.float32)
    log2_t = tf.constant(float(bits - signed - 3))
    piece = piece_of(graph, node)
    wanted = gradients(piece, x)
    for threads in (1, 3):
        fused.set_threads(threads)
        kept = pool_keeping_codes(piece, InputCodes(spec, log2_t, code_ops()), windows)
        for a, b in zip(gradients(kept, x), wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def test_other_windows_are_left_to_tensorflow() -> None:
    assert separate_windows(*pool_of((8, 8), 3, (3, 3), (2, 2))) is None  # they overlap
    assert separate_windows(*pool_of((7, 7), 3, (2, 2), (2, 2), "same")) is None  # padding
    assert separate_windows(*pool_of((32, 32), 3, (16, 16), (16, 16))) is None  # 256 elements
    assert separate_windows(*pool_of((8, 8), 3, (2, 2), (2, 2), "same")) is not None


@needs_ops
def test_shapes_that_do_not_fit() -> None:
    op = code_ops().qgraph_max_pool_codes_grad
    given = {"height": 2, "width": 2, "row_stride": 2, "column_stride": 2, "signed": False}
    codes = tf.zeros([1, 4, 4, 3], tf.uint8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape of the result"):
        op(tf.zeros([1, 2, 3, 3]), codes, **given)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not smaller than a window"):
        op(tf.zeros([1, 1, 1, 3]), codes[:, :1], **given)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must not overlap"):
        op(tf.zeros([1, 3, 2, 3]), codes, **{**given, "row_stride": 1})
