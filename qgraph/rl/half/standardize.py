"""Weight standardisation, for a linear layer whose outputs are normalised (Qiao et al., 2019).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras as keras

from qgraph.foreign import Tensor


def standardized(kernel: Tensor) -> Tensor:
    """A kernel [k, m] whose columns have mean 0 and variance 1 / k.

    A layer norm after it does not depend on the scale; this scale keeps the variance from
    overflowing in float16 for a large k (section 4.6). Types of two bytes are computed in float32:
    the squares of small weights would be 0, and sums over k gradients would stop or overflow.
    """
    wide = tf.cast(kernel, tf.float32) if kernel.dtype.size == 2 else kernel
    centered = wide - tf.reduce_mean(wide, 0, keepdims=True)
    return tf.cast(tf.math.l2_normalize(centered, 0), kernel.dtype)


class StandardizedDense(keras.layers.Dense):  # type: ignore[misc]  # Keras has no types
    """A Keras layer whose kernel is standardised each time it is used."""

    def call(self, inputs: Tensor) -> Tensor:
        """Inputs [..., k] to [..., units], in the layer's type."""
        x = tf.tensordot(inputs, standardized(tf.convert_to_tensor(self.kernel)), 1)
        return self.activation(x + self.bias if self.use_bias else x)
