"""The log-density of a normal distribution, without underflow of its variance (normal-fix).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import math

import tensorflow as tf

from qgraph.foreign import Tensor


def log_density(x: Tensor, mean: Tensor, std: Tensor, *, fix: bool = True) -> Tensor:
    """Of each number of x by itself; all are of one shape.

    With the fix ((x - mean) / std)^2 takes the place of (x - mean)^2 / std^2. In float16 std^2 is
    0 from 0.00017 down, and log-densities are infinite or NaN; gradients are so sooner: that of
    std^2, (x - mean)^2 / std^4, is infinite below 0.016 where x is 4 deviations away.
    """
    away = x - mean
    distance = tf.square(away / std) if fix else tf.square(away) / tf.square(std)
    return -distance / 2 - tf.math.log(std) - math.log(2 * math.pi) / 2
