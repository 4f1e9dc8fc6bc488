"""Number formats of a learner, also narrower ones that are simulated by rounding.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import tensorflow as tf

from qgraph.errors import TrainingError
from qgraph.foreign import Tensor, TensorDType, TFModule
from qgraph.ir.types import Array
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.train.quantizer import chosen, places_on_gpu

Rounding = Callable[[Tensor], Tensor]
SAFE = 2.0**15  # every format can hold smaller numbers

FUSED_TYPES = (tf.float32, tf.float16)


def exact(x: Tensor) -> Tensor:
    """x itself: no rounding beyond that of the type."""
    return x


@dataclass(frozen=True)
class Precision:
    """The type of stored numbers, the type of computed ones, and the rounding of results."""

    stored: TensorDType
    computed: TensorDType
    rounded: Rounding = exact

    def check(self, what: str, x: Array) -> None:
        """Raise TrainingError for a number of `x` that is NaN, or infinite in the computed type."""
        largest = np.abs(x).max(initial=0.0)
        if np.isnan(largest):
            raise TrainingError(f"{what} have NaN", hint="check the environment")
        if largest >= SAFE and not np.isfinite(self.rounded(tf.cast(largest, self.computed))):
            raise TrainingError(
                f"{what} are up to {largest:g}, which is infinite in {self.computed.name}",
                hint="use smaller ones, or float32",
            )


def precision_of(name: str, significand: int | None = None) -> Precision:
    """The types of float32, float16, mixed_float16 or float64.

    significand: bits of a format narrower than float16.
    """
    chosen_format = LearnerPrecision(name)
    mixed = chosen_format is LearnerPrecision.MIXED_FLOAT16
    computed = tf.float16 if mixed else tf.as_dtype(chosen_format.value)
    stored = tf.float32 if mixed else computed
    if significand is None:
        return Precision(stored, computed)
    return Precision(stored, computed, partial(round_significand, bits=significand))


def round_significand(x: Tensor, bits: int) -> Tensor:
    """Round each number of x, float16 or float32, like `qgraph.kernels.round_significand`.

    Gradients through it are rounded too, as in qtorch (section 4.5).
    """

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def rounded(x: Tensor) -> tuple[Tensor, Rounding]:
        return _narrowed(x, bits), lambda gradient: _narrowed(gradient, bits)

    return rounded(x)


def _narrowed(x: Tensor, bits: int) -> Tensor:
    op = fused_op() if x.dtype in FUSED_TYPES else None
    return plain_round(x, bits) if op is None else op(x, bits=bits)


def fused_op() -> TFModule | None:
    """Our op, many times as fast as TensorFlow's; None if it is not built, and under XLA.

    None on a GPU too, by the scope of `tf.device`: the op runs on the CPU, and tensors would have
    to be copied.
    """
    if places_on_gpu():
        return None
    return getattr(chosen().ops, "qgraph_round_significand", None)


def plain_round(x: Tensor, bits: int) -> Tensor:
    """`round_significand` by TensorFlow's ops."""
    found = _round(tf.cast(x, tf.float32), 2.0**bits)
    return tf.cast(tf.ensure_shape(found, x.shape), x.dtype)


# One function for all calls of a learner, so that they are not traced one by one.
@tf.function(  # type: ignore[untyped-decorator]
    input_signature=[tf.TensorSpec(None, tf.float32), tf.TensorSpec((), tf.float32)]
)
def _round(value: Tensor, scale: Tensor) -> Tensor:
    pattern = tf.bitwise.bitwise_and(tf.bitcast(value, tf.uint32), 0x7F800000)
    power = tf.maximum(tf.bitcast(pattern, tf.float32), 2.0**-14)
    found = tf.round(value / power * scale) * (power / scale)
    infinite = value * float("inf")  # of its sign; NaN stays NaN
    return tf.where(tf.abs(found) < 2.0**16, found, infinite)
