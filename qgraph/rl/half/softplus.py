"""The log of a squashed action's slope, without overflow (softplus-fix, equation 2).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from qgraph.foreign import Tensor, TensorDType


def log_slope(u: Tensor, *, fix: bool = True) -> Tensor:
    """log(1 - tanh(u)^2) of each number, as 2 (log 2 - u - log(1 + exp(-2u))).

    tanh(u)^2 itself rounds to 1: in float16 from u = 4.5 on.
    """
    return 2 * (math.log(2) - u - softplus(u, fix=fix))


def softplus(u: Tensor, *, fix: bool = True) -> Tensor:
    """log(1 + exp(-2u)) of each number.

    For very negative u, exp(-2u) is infinite and its gradient NaN: in float16 below -5.5. With the
    fix the function is -2u below K, where both round to the same number.
    """
    u = tf.convert_to_tensor(u)
    if not fix:
        return tf.math.log1p(tf.exp(-2 * u))
    limit = tf.constant(linear_below(u.dtype), u.dtype)
    # `maximum` keeps exp finite where -2u is used: 0 times an infinite gradient is NaN.
    curved = tf.math.log1p(tf.exp(-2 * tf.maximum(u, limit)))
    return tf.where(u < limit, -2 * u, curved)


def linear_below(dtype: TensorDType) -> float:
    """K of equation 2: log(eps) / 2, about -3.5 in float16, -8 in float32, -18 in float64."""
    eps = {tf.bfloat16: 2.0**-7}.get(dtype) or float(np.finfo(dtype.as_numpy_dtype).eps)
    return math.log(eps) / 2
