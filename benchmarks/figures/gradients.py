"""Gradients of the L2 loss `(q(x) - x)^2 / 2` of one quantizer, by its log threshold.

Source: TQT (Jain et al., 2019), sections 3.4 and B.3. The quantizer is the one that trains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Gradient = Callable[[Any, Any], Floats]


def l2_gradient(bits: int, weights: Any = 1.0, compiled: bool = False) -> Gradient:
    """A function of `x[n, columns]` and `log2_t[columns]`: the sum of (9) over each column.

    weights: the weight of each of the n inputs, `[n, 1]`. compiled: for many calls.
    """
    import tensorflow as tf

    from qgraph.train.quantizer import quantize

    weight = tf.constant(weights, tf.float32)

    def gradient(x: Any, log2_t: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(log2_t)
            error = quantize(x, log2_t, bits, signed=True) - x
            loss = tf.reduce_sum(weight * tf.square(error)) / 2
        return tape.gradient(loss, log2_t)

    called = tf.function(gradient) if compiled else gradient

    def run(x: Any, log2_t: Any) -> Floats:
        found = called(tf.constant(x, tf.float32), tf.constant(log2_t, tf.float32))
        return np.asarray(found, np.float64)

    return run


def mean_gradients(sigma: Any, bits: int, log2_t: Any, points: int = 20_001) -> Floats:
    """The expected gradient for one input from Gaussian(sigma), for each sigma and log2_t."""
    sigmas, thresholds = np.broadcast_arrays(np.atleast_1d(sigma), log2_t)
    z = np.linspace(-7, 7, points)[:, None]
    density = np.exp(-np.square(z) / 2)
    return l2_gradient(bits, weights=density / density.sum())(z * sigmas, thresholds)


def raw_gradients(log2_t: Floats, gradients: Floats) -> Floats:
    """The gradients by t instead of log2 t."""
    return np.asarray(gradients / (np.exp2(log2_t) * np.log(2.0)))


def critical(sigma: float, bits: int) -> tuple[int, float]:
    """`log2 t*` and `r_g` of section B.3.

    Gradients are negative in the bin `(log2 t* - 1, log2 t*]` and push the threshold up; they are
    positive in the next bin and push it down. `r_g = -g_l / g_h` of the two.
    """
    bins = np.ceil(np.log2(sigma)) + np.arange(-3.0, 7.0)
    gradients = mean_gradients(sigma, bits, bins)
    low = int(np.flatnonzero(gradients < 0)[-1])
    return int(bins[low]), float(-gradients[low] / gradients[low + 1])
