"""Freeze thresholds one by one after they have settled (TQT, section 5.2).

A threshold that oscillates around a power of two would change the scale until the last step, and
all later layers with it. It is fixed at the value that it had most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import UsageError
from qgraph.foreign import Tensor, Variable

MOMENTUM = 0.99  # of moving averages


@dataclass(frozen=True)
class FreezeSchedule:
    """Freezes one threshold every `every` steps, starting at step `start`.

    Raises UsageError unless `every` is at least 1.
    """

    start: int
    every: int

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UsageError(
                f"steps between two frozen thresholds must be at least 1: {self.every}"
            )

    def is_due(self, step: int) -> bool:
        """Whether a threshold is to be frozen after this number of steps."""
        return step >= self.start and (step - self.start) % self.every == 0


class Freezing:
    """The frozen thresholds, and the moving averages that select the next one.

    ranges: the variable [scales] of a training graph (`Quantizers.ranges`). at_once: thresholds to
    freeze together, 0 for none; one by one, those of single channels would take too many steps.
    """

    def __init__(self, ranges: Variable, at_once: int = 1) -> None:
        import tensorflow as tf

        def held(value: Tensor, name: str) -> Tensor:
            return tf.Variable(
                value,
                trainable=False,
                name=f"freezing/{name}",
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,  # all assign the same
            )

        self.ranges, self.at_once = ranges, at_once
        self.frozen = held(tf.zeros(ranges.shape, tf.bool), "frozen")
        self.average = held(tf.identity(ranges), "average")
        self.gradient = held(tf.zeros_like(ranges), "gradient")
        self.latest = held(tf.zeros_like(ranges), "latest")  # the last gradient, for display

    @property
    def variables(self) -> list[Variable]:
        return [self.frozen, self.average, self.gradient]

    def observe(self, gradient: Tensor) -> None:
        """Update the moving averages after a step. gradient: of the thresholds, [scales]."""
        for average, value in ((self.average, self.ranges), (self.gradient, abs(gradient))):
            average.assign(average + (value - average) * (1 - MOMENTUM))
        self.latest.assign(gradient)

    def hold(self, before: Tensor, gradient: Tensor) -> None:
        """Reset frozen thresholds after a step of an optimizer that changed all, then `observe`.

        before: the thresholds [scales] before the step.
        """
        import tensorflow as tf

        self.ranges.assign(tf.where(self.frozen, before, self.ranges))
        self.observe(gradient)

    def freeze_next(self) -> list[int]:
        """Freeze the `at_once` thresholds with the smallest mean gradients among the settled ones.

        A threshold has settled if it has the power of two of its moving average. Returns their
        indices, fewer if fewer have settled.
        """
        frozen = self.frozen.numpy()
        settled = np.ceil(self.ranges.numpy()) == np.ceil(self.average.numpy())
        candidates = np.flatnonzero(settled & ~frozen)
        order = np.argsort(self.gradient.numpy()[candidates], kind="stable")
        chosen = [int(index) for index in candidates[order[: self.at_once]]]
        self.freeze(chosen)
        return chosen

    def count(self) -> int:
        """The number of frozen thresholds."""
        return int(self.frozen.numpy().sum())

    def freeze(self, indices: Sequence[int]) -> None:
        """Freeze these thresholds, whether they have settled or not."""
        frozen = self.frozen.numpy()
        frozen[list(indices)] = True
        self.frozen.assign(frozen)
