"""The integer softmax in training: the numbers of inference, the gradient of the real one."""

from __future__ import annotations

import numpy as np

from qgraph.foreign import Tensor
from qgraph.ir.graph import Node
from qgraph.ir.ops.integer_softmax import EXPONENTIAL_BITS, IntegerSoftmaxAttrs, exponentials
from qgraph.ir.types import Codes, QuantSpec

FAR = 2.0**100
# Below this exponent, the exponential of one step is 0; so many above the bits, all are 1.
COARSEST, FINER = -5, EXPONENTIAL_BITS + 2


def integer_softmax(node: Node, x: Tensor, exponent: Tensor) -> Tensor:
    """The softmax of x on codes, float32 [..., c] (`qgraph.ir.ops.integer_softmax`).

    x: on a grid of step `2^-exponent`, a scalar that may change. The gradient is that of the real
    softmax.
    """
    import tensorflow as tf

    attrs = node.typed(IntegerSoftmaxAttrs)
    wide = tf.cast(x, tf.float64)
    exponent = tf.cast(tf.stop_gradient(exponent), tf.int32)
    codes = tf.cast(tf.round(wide * 2.0 ** tf.cast(exponent, tf.float64)), tf.int64)
    tables = all_exponentials(attrs.domain)
    entries = tf.gather(tables, tf.clip_by_value(exponent - COARSEST, 0, len(tables) - 1))
    distances = tf.reduce_max(codes, -1, keepdims=True) - codes
    farthest = tables.shape[1] - 1
    smooth = tf.nn.softmax(tf.where(distances < farthest, wide, wide - FAR))  # without the masked
    found = tf.gather(entries, tf.minimum(distances, farthest))
    total = tf.reduce_sum(found, -1, keepdims=True)
    shares = (found * (1 << attrs.exponent) + total // 2) // total
    exact = tf.cast(tf.minimum(shares, attrs.spec.hi), tf.float64) * 2.0**-attrs.exponent
    return tf.cast(smooth + tf.stop_gradient(exact - smooth), tf.float32)


def all_exponentials(domain: QuantSpec) -> Codes:
    """The table for each exponent from `COARSEST` on, [exponents, distances], filled with 0."""
    size = domain.hi - domain.lo + 2  # the last is 0, for masked elements
    made = np.zeros((domain.bits + FINER - COARSEST, size), np.int64)
    for row, exponent in zip(made, range(COARSEST, domain.bits + FINER), strict=True):
        entries = exponentials(domain, exponent)
        row[: len(entries)] = entries
    return made
