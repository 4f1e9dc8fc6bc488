"""The scale of a loss, as large as its gradients allow (dynamic loss scaling).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import math

import tensorflow as tf

from qgraph.errors import UsageError
from qgraph.foreign import Tensor, Variable

# As in the code of the paper, whose first scale is 1e4.
FIRST_SCALE, INTERVAL = 2.0**13, 10_000
MAX_SCALE = 2.0**15  # float16 ends at 2^16
MIN_SCALE = 2.0**-14  # the smallest normal number of float16


class LossScale:
    """A scale that is halved if gradients are not finite, else doubled after `interval` steps.

    With a power of two as `first`, scaling rounds subnormal numbers only. Raises UsageError for a
    `first` that is not in LEAST..most, for an infinite `most`, and for an interval below 1.
    """

    def __init__(
        self, first: float = FIRST_SCALE, *, interval: int = INTERVAL, most: float = MAX_SCALE
    ) -> None:
        if not MIN_SCALE <= first <= most < math.inf or interval < 1:
            raise UsageError(
                f"a loss scale begins with {first}, is {most} at most, and doubled after "
                f"{interval} steps",
                hint=f"{MIN_SCALE} or more, no more than the most, and 1 step or more",
            )
        self.value = tf.Variable(first, trainable=False, dtype=tf.float32, name="loss_scale")
        self.fine = tf.Variable(0, trainable=False, dtype=tf.int64, name="fine_steps")
        self.interval, self.most = interval, most

    @property
    def state(self) -> dict[str, Variable]:
        """The variables that a resumed run needs, by name."""
        return {"value": self.value, "fine": self.fine}

    @property
    def exhausted(self) -> bool:
        """Whether gradients were infinite at the smallest scale."""
        return float(self.value) < MIN_SCALE

    def doubles_next(self) -> Tensor:
        """Whether one more step with finite gradients doubles the scale."""
        return tf.logical_and(self.fine + 1 >= self.interval, self.value * 2 <= self.most)

    def update(self, finite: Tensor, may_grow: Tensor) -> Tensor:
        """Update the scale after a step; returns its factor: 1/2, 1, or 2 if it is due."""
        grown = tf.where(tf.logical_and(self.doubles_next(), may_grow), 2.0, 1.0)
        factor = tf.where(finite, grown, 0.5)
        again = tf.logical_and(finite, self.fine + 1 < self.interval)
        self.fine.assign(tf.where(again, self.fine + 1, 0))
        self.value.assign(self.value * factor)
        return factor
