"""Gradient descent on thresholds with normed gradients (TQT, equations 17 and 18), and Adam on
weights.

This file imports TensorFlow.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from qgraph.train.freezing import Freezing
from qgraph.train.kind import RateUnits
from qgraph.train.optimizer import TqtAdam, rates_of
from qgraph.train.options import Options

BETA, EPSILON = 0.999, 1e-8


class NormedDescent(TqtAdam):
    """Like `TqtAdam`, but thresholds move by `alpha tanh(g / (sqrt(v) + epsilon))`."""

    def update_step(self, gradient: Any, variable: Any) -> None:
        """Update one variable."""
        if self._var_key(variable) != self._var_key(self.freezing.ranges):
            super().update_step(gradient, variable)
            return
        second = self.second[self._index_dict[self._var_key(variable)]]
        second.assign(BETA * second + (1 - BETA) * gradient**2)
        steps = tf.cast(self.iterations + 1, tf.float32)
        size = tf.sqrt(second / (1 - tf.pow(BETA, steps))) + EPSILON
        change = self.threshold_rate.at(self.iterations) * tf.tanh(gradient / size)
        variable.assign(tf.where(self.freezing.frozen, variable, variable - change))
        self.freezing.observe(gradient)


def normed_descent(options: Options, freezing: Freezing, units: RateUnits) -> NormedDescent:
    """The optimizer with the learning rates of `options`."""
    return NormedDescent(*rates_of(options), freezing, units)
