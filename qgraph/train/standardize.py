"""The integer layer norm in training: the numbers of inference, the gradient of real ones."""

from __future__ import annotations

import numpy as np

from qgraph.foreign import Tensor
from qgraph.ir.graph import Node
from qgraph.ir.ops.standardize import SQUARE_BITS, StandardizationAttrs, largest_square


def standardize(node: Node, x: Tensor, exponent: Tensor) -> Tensor:
    """The integer layer norm of x, float32 [..., c] (`qgraph.ir.ops.standardize`).

    x: on a grid of step `2^-exponent`, a scalar that may change. The gradient is that of
    `(x - mean) / sqrt(variance + epsilon)`.
    """
    import tensorflow as tf

    wide = tf.cast(x, tf.float64)
    centred = wide - tf.reduce_mean(wide, -1, keepdims=True)
    variance = tf.reduce_mean(centred * centred, -1, keepdims=True)
    smooth = centred * tf.math.rsqrt(
        tf.maximum(variance + node.typed(StandardizationAttrs).epsilon, np.finfo(np.float64).tiny)
    )
    exact = _on_codes(node, wide, tf.cast(tf.stop_gradient(exponent), tf.int64))
    return tf.cast(smooth + tf.stop_gradient(exact - smooth), tf.float32)


def _on_codes(node: Node, x: Tensor, exponent: Tensor) -> Tensor:
    """The same steps as `standardization` and `standardized`, in the same order."""
    import tensorflow as tf

    attrs, channels = node.typed(StandardizationAttrs), int(x.shape[-1])
    made = attrs.exponent
    epsilon = attrs.epsilon * channels**2 * _power(2 * exponent)
    reach = float(largest_square(attrs, channels)) + epsilon
    guards = tf.range(max(-made, 0), SQUARE_BITS // 2 + 1, dtype=tf.int64)
    fits = reach * _power(2 * guards) < float(1 << SQUARE_BITS)
    guard = tf.reduce_max(tf.where(fits, guards, guards[0]))
    epsilon = tf.cast(tf.round(epsilon * _power(2 * guard)), tf.int64)

    one = tf.constant(1, tf.int64)
    codes = tf.cast(tf.round(x * _power(exponent)), tf.int64)
    total = tf.reduce_sum(codes, -1, keepdims=True)
    square = channels * tf.reduce_sum(codes * codes, -1, keepdims=True) - total * total
    square = square * tf.bitwise.left_shift(one, 2 * guard) + epsilon
    root = tf.cast(tf.floor(tf.sqrt(tf.cast(square, tf.float64))), tf.int64) + 1
    deviation = (channels * codes - total) * tf.bitwise.left_shift(one, made + guard)
    standard = (2 * deviation + root) // (2 * root)
    return tf.cast(standard, tf.float64) * 2.0**-made


def _power(exponent: Tensor) -> Tensor:
    """2^exponent in float64, built from bits, because `pow` is not exact on every device."""
    import tensorflow as tf

    return tf.bitcast(tf.bitwise.left_shift(exponent + 1023, tf.constant(52, tf.int64)), tf.float64)
