"""Weight standardisation, for a linear layer whose outputs are normalised (Qiao et al., 2019).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
import tf_keras as keras

Tensor = Any
TINY = 1e-6  # of a column that has one number only


def standardized(kernel: Tensor) -> Tensor:
    """A kernel [k, m] whose columns have mean 0 and variance 1 / k.

    A layer norm behind it is the same at any scale; this one keeps its variance from overflowing
    in float16, where k is large (section 4.6).
    """
    centered = kernel - tf.nn.moments(kernel, 0, keepdims=True)[0]  # which sums in float32
    # Made about 1 first: squares of small weights are 0 in float16.
    most = tf.stop_gradient(tf.reduce_max(tf.abs(centered), 0, keepdims=True))
    relative = centered / tf.maximum(most, tf.constant(TINY, kernel.dtype))
    _, variance = tf.nn.moments(relative, 0, keepdims=True)
    deviation = tf.sqrt(tf.maximum(variance, tf.constant(TINY, kernel.dtype)))
    return relative / deviation / math.sqrt(int(kernel.shape[0]))


class StandardizedDense(keras.layers.Dense):  # type: ignore[misc]
    """A Keras layer whose kernel is standardised each time it is used."""

    def call(self, inputs: Tensor) -> Tensor:
        """Inputs [..., k] to [..., units], in the layer's type."""
        x = tf.tensordot(inputs, standardized(tf.convert_to_tensor(self.kernel)), 1)
        return self.activation(x + self.bias if self.use_bias else x)
