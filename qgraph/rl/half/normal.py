"""The log-density of a normal distribution, without underflow of its variance (normal-fix).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import math

import tensorflow as tf

from qgraph.foreign import Tensor


def log_density(x: Tensor, mean: Tensor, std: Tensor, *, fix: bool = True) -> Tensor:
    """The log-density of each number of x; all arguments have one shape.

    The fix replaces (x - mean)^2 / std^2 by ((x - mean) / std)^2. In float16, std^2 is 0 for std up
    to 0.00017, which makes log-densities infinite or NaN. Gradients overflow earlier: the gradient
    of std^2, (x - mean)^2 / std^4, is infinite below 0.016 if x is 4 deviations away.
    """
    away = x - mean
    distance = tf.square(away / std) if fix else tf.square(away) / tf.square(std)
    return -distance / 2 - tf.math.log(std) - math.log(2 * math.pi) / 2
