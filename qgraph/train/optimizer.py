"""Adam with one learning rate for thresholds and one for weights (TQT, sections 4.2 and 5.2).

This file imports TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import tensorflow as tf
import tf_keras as keras

from qgraph.foreign import Tensor, Variable
from qgraph.train.freezing import Freezing
from qgraph.train.kind import RateUnits
from qgraph.train.options import ANNEALED, Options


@dataclass(frozen=True)
class Rate:
    """A learning rate that is multiplied by `decay` every `steps` steps.

    With `anneal`, it also falls along a cosine, to the factor ANNEALED after that many steps.
    """

    start: float
    decay: float
    steps: int
    anneal: int | None = None

    def at(self, step: Tensor) -> Tensor:
        """The rate after `step` steps, float32."""
        times = tf.cast(step // self.steps, tf.float32)
        rate = tf.constant(self.start, tf.float32) * tf.pow(self.decay, times)
        if self.anneal is None:
            return rate
        share = tf.minimum(tf.cast(step, tf.float32) / float(self.anneal), 1.0)
        return rate * (ANNEALED + (1 - ANNEALED) * (1 + tf.cos(math.pi * share)) / 2)


@dataclass(frozen=True)
class StepScalars:
    """Scalars that the updates of all variables share in one step, float32."""

    weight_rate: Tensor
    threshold_rate: Tensor
    beta1_power: Tensor
    beta2_power: Tensor


class TqtAdam(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Adam that updates thresholds with one learning rate and other variables with another.

    Frozen thresholds do not change; `freezing` observes every step. The decay rates of the moments
    are 0.9 and 0.999. units: factors of the learning rate of variables; 1 for others.
    """

    def __init__(
        self,
        weights: Rate,
        thresholds: Rate,
        freezing: Freezing,
        units: RateUnits = (),
        *,
        betas: Sequence[float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        name: str = "TqtAdam",
    ) -> None:
        # Keras would take a weight decay of 0 for one, and change each variable a second time.
        super().__init__(name=name, jit_compile=False, weight_decay=None)
        self._learning_rate = self._build_learning_rate(weights.start)
        self.weight_rate, self.threshold_rate, self.freezing = weights, thresholds, freezing
        self.betas, self.epsilon = tuple(betas), epsilon
        self.units = {self._var_key(variable): unit for variable, unit in units}
        self._now: StepScalars | None = None

    def build(self, variables: Sequence[Variable]) -> None:
        """Create the moments of `variables`."""
        super().build(variables)
        if getattr(self, "_built", False):
            return
        self._built = True
        self.first = [self.add_variable_from_reference(v, "m") for v in variables]
        self.second = [self.add_variable_from_reference(v, "v") for v in variables]

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Tensor, Variable]], *args: object, **kwargs: object
    ) -> Variable:
        """As in Keras. Rates and powers are computed once: for each variable, they would be a dozen
        ops, which take longer than small layers."""
        self._now = self._scalars()
        try:
            return super().apply_gradients(grads_and_vars, *args, **kwargs)
        finally:
            self._now = None

    def _scalars(self) -> StepScalars:
        beta1, beta2 = self.betas
        step = tf.identity(self.iterations)
        t = tf.cast(step + 1, tf.float32)
        rates = (self.weight_rate.at(step), self.threshold_rate.at(step))
        return StepScalars(*rates, tf.pow(beta1, t), tf.pow(beta2, t))

    def update_step(self, gradient: Tensor, variable: Variable) -> None:
        """Update one variable."""
        index = self._index_dict[self._var_key(variable)]
        first, second = self.first[index], self.second[index]
        is_thresholds = self._var_key(variable) == self._var_key(self.freezing.ranges)
        now = self._now or self._scalars()
        rate = now.threshold_rate if is_thresholds else now.weight_rate
        if (unit := self.units.get(self._var_key(variable), 1.0)) != 1.0:
            rate *= unit
        beta1, beta2 = self.betas
        before = tf.identity(variable) if is_thresholds else None
        # One op: written out, the formula is a dozen ops, which take longer than small layers.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle, m=first.handle, v=second.handle, lr=rate, grad=gradient,
            beta1=beta1, beta1_power=now.beta1_power, beta2=beta2, beta2_power=now.beta2_power,
            epsilon=self.epsilon,
        )  # fmt: skip
        if is_thresholds:
            variable.assign(tf.where(self.freezing.frozen, before, variable))
            self.freezing.observe(gradient)

    def get_config(self) -> dict[str, object]:
        """Configuration with the learning rates as plain numbers."""
        rates = {"weights": self.weight_rate, "thresholds": self.threshold_rate}
        return {**super().get_config(), **{name: vars(rate) for name, rate in rates.items()}}


def adam_for(options: Options, freezing: Freezing, units: RateUnits = ()) -> TqtAdam:
    """The optimizer with the learning rates of `options`, which decay as in TQT (section 5.2).

    units: as `rate_units` returns them, for `options.step_rate`.
    """
    return TqtAdam(*rates_of(options), freezing, units)


def rates_of(options: Options) -> tuple[Rate, Rate]:
    """The learning rates of weights and of thresholds."""
    weights = options.weight_rate if options.step_rate is None else options.step_rate
    return (
        Rate(weights, 0.94, options.steps_for(3000), options.anneal_steps),
        Rate(options.threshold_rate, 0.5, options.steps_for(1000)),
    )
