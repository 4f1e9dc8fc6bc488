"""Transfer curves: the output and the gradients of a quantizer for each input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.figures.gradients import Floats

BITS, LOG2_T = 3, 0.0
LIMITS = (-1.125, 0.875)  # limits of FakeQuant at which the signed quantizer of 3 bits clips


@dataclass(frozen=True)
class Curves:
    """A quantizer at each x: its value, and the gradients of the value by x and by its limits."""

    x: Floats
    value: Floats
    by_x: Floats
    by_limits: dict[str, Floats]

    def of_loss(self) -> Curves:
        """The gradients of the loss `(value - x)^2 / 2`: (9) and (10)."""
        error = self.value - self.x
        by_limits = {name: error * slope for name, slope in self.by_limits.items()}
        return Curves(self.x, error**2 / 2, error * (self.by_x - 1), by_limits)


def qgraph_quantizer(
    x: Floats, bits: int = BITS, signed: bool = True, log2_t: float = LOG2_T
) -> Curves:
    """The curves of qgraph's quantizer."""
    from qgraph.train.quantizer import quantize

    def forward(x: Any, log2_t: Any) -> Any:
        return quantize(x, log2_t, bits, signed)

    return _curves(x, forward, {"log2 t": log2_t})


def fake_quant(x: Floats, bits: int = BITS, limits: tuple[float, float] = LIMITS) -> Curves:
    """The curves of TensorFlow's FakeQuant, which moves its limits until 0 is a code."""
    import tensorflow as tf

    def forward(x: Any, low: Any, high: Any) -> Any:
        op = tf.quantization.fake_quant_with_min_max_vars_per_channel
        return op(x, low, high, num_bits=bits)

    return _curves(x, forward, {"min": limits[0], "max": limits[1]})


def _curves(x: Floats, forward: Callable[..., Any], limits: dict[str, float]) -> Curves:
    """The curves of a quantizer. Each x is its own channel, so its gradients are not added to
    others.
    """
    import tensorflow as tf

    inputs = [tf.constant(x, tf.float32)]
    inputs += [tf.fill([len(x)], tf.constant(limit, tf.float32)) for limit in limits.values()]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = forward(inputs[0][None], *inputs[1:])
    by_x, *slopes = (np.asarray(g, np.float64) for g in tape.gradient(y, inputs))
    seen, value = (np.asarray(v, np.float64) for v in (inputs[0], y[0]))
    return Curves(seen, value, by_x, dict(zip(limits, slopes, strict=True)))
