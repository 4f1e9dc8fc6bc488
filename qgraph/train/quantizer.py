"""The trainable quantizer in TensorFlow ops (TQT, equations 4 and 6 to 8)."""

from __future__ import annotations

from math import log
from typing import Any

Tensor = Any


def quantize(
    x: Tensor, log2_t: Tensor, bits: int, signed: bool, rounding: str = "half_even"
) -> Tensor:
    """`x` [...] float32 on the grid of threshold `2^ceil(log2_t)`, differentiable in both.

    log2_t: a float32 scalar. The gradient of `x` is 1 where its code is not clipped, else 0; that
    of `log2_t` is `s ln 2` times `code - x / s` inside, and the end of the range where clipped,
    summed in float64. Only `x` is kept for the backward pass. NaN stays NaN.
    """
    import tensorflow as tf

    low = -float(1 << (bits - 1)) if signed else 0.0
    high = float((1 << (bits - int(signed))) - 1)

    def apply(x: Tensor, log2_t: Tensor) -> Any:
        scale = tf.pow(2.0, tf.math.ceil(log2_t) - float(bits - int(signed)))
        value = tf.clip_by_value(_round(tf, x / scale, rounding), low, high) * scale

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            scaled = x / scale
            code = _round(tf, scaled, rounding)
            inside = (code >= low) & (code <= high)
            slope = tf.where(inside, code - scaled, tf.clip_by_value(code, low, high))
            total = tf.reduce_sum(tf.cast(upstream * slope, tf.float64))
            by_threshold = tf.cast(total * log(2.0) * tf.cast(scale, tf.float64), tf.float32)
            return tf.where(inside, upstream, tf.zeros_like(upstream)), by_threshold

        return value, gradient

    return tf.custom_gradient(apply)(x, log2_t)


def _round(tf: Any, x: Tensor, rounding: str) -> Tensor:
    if rounding == "half_even":
        return tf.round(x)
    whole = tf.floor(x)
    if rounding == "floor":
        return whole
    if rounding == "half_up":
        return whole + tf.cast(x - whole >= 0.5, x.dtype)
    size = tf.abs(x)
    whole = tf.floor(size)
    return tf.sign(x) * (whole + tf.cast(size - whole >= 0.5, x.dtype))
