"""One quantizer of each kind that TQT is compared with: start, forward pass and backward pass.

Trained numbers are in units of their start, so that one learning rate works for all kinds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qgraph.ir.types import Array, QuantSpec
from qgraph.train.norms import Update

Tensor = Any
TINY = 1e-6  # the smallest range, used if all values are 0
LEAST = 0.01  # the lower limit of a range, as a share of its start


class Quantizer:
    """The base of all quantizers, which changes nothing and trains nothing.

    spec: bits and sign. x: values of a few samples before training. depthwise: whether the channels
    of weights are their last two axes. `first`: the start of the trained numbers, [k].
    """

    first: Array = np.zeros(0, np.float32)

    def __init__(self, spec: QuantSpec, x: Array, depthwise: bool = False) -> None:
        self.spec, self.depthwise = spec, depthwise
        self.low, self.high = float(spec.lo), float(spec.hi)

    def run(self, x: Tensor, trained: Tensor) -> Tensor:
        """The quantized x. trained: the current values of the trained numbers."""
        return x

    def penalty(self, trained: Tensor) -> Tensor:
        """A term of the loss."""
        return 0.0

    def updates(self, x: Tensor) -> list[Update]:
        """New values of variables that a training step changes without a gradient."""
        return []

    @property
    def variables(self) -> list[Tensor]:
        """The variables that `updates` changes."""
        return []


class RealTqt(Quantizer):
    """TQT without its rounding to powers of two: `s = t / 2^(b - signed)`, log2 t is trained.

    It starts at the calibrated power of two.
    """

    def __init__(self, spec: QuantSpec, x: Array, depthwise: bool = False) -> None:
        super().__init__(spec, x, depthwise)
        assert isinstance(spec.exponent, int)
        self.bits = spec.bits - spec.signed
        self.first = np.array([self.bits - spec.exponent], np.float32)

    def run(self, x: Tensor, trained: Tensor) -> Tensor:
        """Equations 4, 7 and 8."""
        step = 2.0 ** (trained[0] - float(self.bits))
        return stepped(x, step, self.low, self.high)


class Lsq(Quantizer):
    """LSQ (Esser et al., 2019): the step is trained, its gradient is scaled by 1 / sqrt(N Q_P).

    It starts at `2 mean|x| / sqrt(Q_P)`.
    """

    def __init__(self, spec: QuantSpec, x: Array, depthwise: bool = False) -> None:
        super().__init__(spec, x, depthwise)
        self.start = max(2 * float(np.abs(x).mean()) / math.sqrt(self.high), TINY)
        self.first = np.ones(1, np.float32)

    def run(self, x: Tensor, trained: Tensor) -> Tensor:
        """Equations 1 to 5 of LSQ."""
        import tensorflow as tf

        step = self.start * tf.maximum(trained[0], LEAST)
        count = tf.cast(tf.size(x) if self.spec.role == "weight" else tf.size(x[0]), tf.float32)
        factor = tf.math.rsqrt(count * self.high)
        step = tf.stop_gradient(step - step * factor) + step * factor
        return lsq(x, step, self.low, self.high)


class Pact(Quantizer):
    """PACT (Choi et al., 2018): the upper limit of an activation is trained, with an L2 penalty.

    It starts at the largest magnitude. Where values are signed, the lower limit is its opposite.
    """

    DECAY = 2e-4

    def __init__(self, spec: QuantSpec, x: Array, depthwise: bool = False) -> None:
        super().__init__(spec, x, depthwise)
        self.start = max(float(np.abs(x).max()), TINY)
        self.first = np.ones(1, np.float32)

    def run(self, x: Tensor, trained: Tensor) -> Tensor:
        """Equations 1 to 3 of PACT."""
        import tensorflow as tf

        limit = self.start * tf.maximum(trained[0], LEAST)
        return pact(x, limit, self.high, self.spec.signed)

    def penalty(self, trained: Tensor) -> Tensor:
        """L2 of the limit."""
        return self.DECAY * (self.start * trained[0]) ** 2


class MaxWeights(Quantizer):
    """Weights on a real scale given by their current largest magnitude."""

    def run(self, x: Tensor, trained: Tensor) -> Tensor:
        """Equation 4, where x has the gradient 1."""
        import tensorflow as tf

        step = tf.maximum(tf.reduce_max(tf.abs(x)), TINY) / self.high
        limits = self.low, self.high
        return tf.grad_pass_through(lambda v: tf.clip_by_value(tf.round(v / step), *limits) * step)(
            x
        )


class FakeQuant(Quantizer):
    """TensorFlow's FakeQuant: minimum and maximum are trained, and a zero point makes 0 a code.

    It starts at the extremes of the values.
    """

    def __init__(self, spec: QuantSpec, x: Array, depthwise: bool = False) -> None:
        super().__init__(spec, x, depthwise)
        low, high = min(float(x.min()), 0.0), max(float(x.max()), TINY)
        self.span = high - low
        self.first = np.array([low / self.span, high / self.span], np.float32)

    def run(self, x: Tensor, trained: Tensor) -> Tensor:
        """Equation 11, by TensorFlow's own kernel and gradient."""
        import tensorflow as tf

        low = self.span * tf.minimum(trained[0], 0.0)
        high = self.span * tf.maximum(trained[1], LEAST)
        return tf.quantization.fake_quant_with_min_max_vars(x, low, high, self.spec.bits)


class MovingRange(Quantizer):
    """Activations of Google's QAT: FakeQuant with moving averages of minimum and maximum."""

    MOMENTUM = 0.99

    def __init__(self, spec: QuantSpec, x: Array, depthwise: bool = False) -> None:
        import tensorflow as tf

        super().__init__(spec, x, depthwise)
        extremes = [min(float(x.min()), 0.0), max(float(x.max()), TINY)]
        self.range = tf.Variable(extremes, trainable=False, dtype=tf.float32)

    def run(self, x: Tensor, trained: Tensor) -> Tensor:
        """Equation 11, with the gradient of x alone."""
        import tensorflow as tf

        low, high = tf.unstack(tf.stop_gradient(self.range))
        return tf.quantization.fake_quant_with_min_max_vars(x, low, high, self.spec.bits)

    def updates(self, x: Tensor) -> list[Update]:
        """The moving averages."""
        import tensorflow as tf

        low = tf.minimum(tf.reduce_min(x), 0.0)
        high = tf.maximum(tf.reduce_max(x), TINY)
        new = tf.stop_gradient(tf.stack([low, high]))
        return [(self.range, self.range + (new - self.range) * (1 - self.MOMENTUM))]

    @property
    def variables(self) -> list[Tensor]:
        """The moving averages."""
        return [self.range]


class RangeOfWeights(Quantizer):
    """Weights of Google's QAT per tensor with a zero point: FakeQuant from minimum to maximum."""

    def run(self, x: Tensor, trained: Tensor) -> Tensor:
        """Equation 11, with the gradient of x alone."""
        import tensorflow as tf

        low = tf.stop_gradient(tf.minimum(tf.reduce_min(x), 0.0))
        high = tf.stop_gradient(tf.maximum(tf.reduce_max(x), TINY))
        return tf.quantization.fake_quant_with_min_max_vars(x, low, high, self.spec.bits)


class RangeOfChannels(Quantizer):
    """Weights of Google's QAT per channel and symmetric: FakeQuant to the largest magnitude."""

    def run(self, x: Tensor, trained: Tensor) -> Tensor:
        """Equation 11, with the gradient of x alone."""
        import tensorflow as tf

        shape = x.shape
        flat = tf.reshape(x, [-1, shape[-2] * shape[-1] if self.depthwise else shape[-1]])
        largest = tf.stop_gradient(tf.maximum(tf.reduce_max(tf.abs(flat), axis=0), TINY))
        y = tf.quantization.fake_quant_with_min_max_vars_per_channel(
            flat, -largest, largest, self.spec.bits, narrow_range=True
        )
        return tf.reshape(y, shape)


# -- forward and backward passes -------------------------------------------------------------------


def stepped(x: Tensor, step: Tensor, low: float, high: float) -> Tensor:
    """`clip(round(x / s), n, p) * s` with the gradients of TQT (6) and (8)."""
    import tensorflow as tf

    scaled = x / step
    codes = scaled + tf.stop_gradient(tf.round(scaled) - scaled)  # its gradient is 1
    return tf.clip_by_value(codes, low, high) * step


def lsq(x: Tensor, step: Tensor, low: float, high: float) -> Tensor:
    """`round(clip(x / s, n, p)) * s`; its gradients clip before rounding (LSQ, 3 and 5)."""
    import tensorflow as tf

    def run(x: Tensor, step: Tensor) -> Tensor:
        scaled = x / step
        codes = tf.round(tf.clip_by_value(scaled, low, high))

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            inside = (scaled > low) & (scaled < high)
            by_step = tf.where(inside, codes - scaled, codes)
            by_x = tf.where(inside, upstream, tf.zeros_like(upstream))
            return by_x, tf.reduce_sum(upstream * by_step)

        return codes * step, gradient

    return tf.custom_gradient(run)(x, step)


def pact(x: Tensor, limit: Tensor, high: float, signed: bool) -> Tensor:
    """x clipped to 0 (or -limit) and limit, on `high` steps; gradients of the clip alone (PACT)."""
    import tensorflow as tf

    def run(x: Tensor, limit: Tensor) -> Tensor:
        least = -limit if signed else tf.zeros_like(limit)
        step = limit / high
        y = tf.round(tf.clip_by_value(x, least, limit) / step) * step

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            above, below = x >= limit, x <= least if signed else x < least
            sides = tf.where(above, upstream, tf.where(below, -upstream if signed else 0.0, 0.0))
            by_x = tf.where(above | below, tf.zeros_like(upstream), upstream)
            return by_x, tf.reduce_sum(sides)

        return y, gradient

    return tf.custom_gradient(run)(x, limit)
