"""Adam in the type of its variables, and hAdam, whose second moment does not underflow.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import tensorflow as tf
import tf_keras as keras

from qgraph.errors import UsageError
from qgraph.foreign import Tensor, Variable
from qgraph.rl.half.kahan import kahan_add
from qgraph.rl.half.precision import Rounding, exact

CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
MARGIN = 1.1  # rounding may exceed the largest float16 by less than this factor


class LowPrecisionAdam(keras.optimizers.Optimizer):  # type: ignore[misc]  # Keras has no types
    """Adam (Kingma and Ba, 2015) with all arithmetic in the type of the variables.

    kahan               updates are added by Kahan summation (Kahan-gradients)
    gradient_scale      the factor of gradients (compound loss scaling); they are not divided by it
                        again, since epsilon is multiplied too. `rescale` changes it.
    settings            settings of every Keras optimizer, such as `clipnorm`

    Raises UsageError for CLIPS and `weight_decay` if variables are float16, which cannot hold the
    norms by which Keras clips, and loses the decay that it subtracts.
    """

    default_name: ClassVar[str] = "Adam"

    def __init__(
        self,
        learning_rate: float = 1e-3,
        *,
        betas: Sequence[float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        kahan: bool = False,
        gradient_scale: float = 1.0,
        rounded: Rounding = exact,
        name: str | None = None,
        **settings: object,
    ) -> None:
        super().__init__(name=name or self.default_name, **{**settings, "jit_compile": False})
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.betas, self.epsilon = tuple(betas), epsilon
        self.kahan, self.rounded = kahan, rounded
        self.gradient_scale = tf.Variable(gradient_scale, trainable=False, name="gradient_scale")

    def build(self, variables: Sequence[Variable]) -> None:
        """Create the state for `variables`."""
        if any(v.dtype == tf.float16 for v in variables):
            self.check_without((*CLIPS, "weight_decay"), "variables in float16")
        super().build(variables)
        if getattr(self, "_built", False):
            return
        self._built = True
        self.first = [self.add_variable_from_reference(v, "first") for v in variables]
        self.second = [self.add_variable_from_reference(v, "second") for v in variables]
        compensated = variables if self.kahan else ()
        self.compensation = [self.add_variable_from_reference(v, "lost") for v in compensated]

    def check_without(self, settings: Sequence[str], what: str) -> None:
        """Raise UsageError if one of these settings is set, which `what` exclude."""
        for name in settings:
            if getattr(self, name):  # 0 or None if it is not set
                raise UsageError(
                    f"`{name}` does not work with {what}",
                    node=self.name,
                    hint="clip the gradients of the tape, or add the decay to the loss",
                )

    @property
    def state(self) -> dict[str, Variable]:
        """The variables that a resumed run needs, by name."""
        parts = {"first": self.first, "second": self.second, "lost": self.compensation}
        slots = {f"{part}/{i}": v for part, found in parts.items() for i, v in enumerate(found)}
        return {**slots, "steps": self.iterations, "gradient_scale": self.gradient_scale}

    def update_step(self, gradient: Tensor, variable: Variable) -> None:
        """One variable, one step."""
        gradient = tf.convert_to_tensor(gradient)  # it may have some rows only
        index = self._index_dict[self._var_key(variable)]
        first, second, dtype = self.first[index], self.second[index], variable.dtype
        steps = tf.cast(self.iterations + 1, tf.float64)
        beta = self.betas[0]
        first.assign(self.rounded(beta * first + (1 - beta) * gradient))
        second.assign(self.rounded(self._moved(second, gradient)))
        mean = first / tf.cast(1 - beta**steps, dtype)
        root = self._root(second, tf.cast(tf.sqrt(1 - self.betas[1] ** steps), dtype))
        epsilon = self.epsilon * tf.cast(self.gradient_scale, tf.float64)
        ratio = self.rounded(self._ratio(mean, self.rounded(root + tf.cast(epsilon, dtype))))
        change = self.rounded(-tf.cast(self.learning_rate, dtype) * ratio)
        if self.kahan:
            kahan_add(variable, self.compensation[index], change, self.rounded)
        else:
            variable.assign(self.rounded(variable + change))

    def _moved(self, second: Tensor, gradient: Tensor) -> Tensor:
        beta = self.betas[1]
        return beta * second + (1 - beta) * tf.square(gradient)

    def _root(self, second: Tensor, correction: Tensor) -> Tensor:
        """The root of the second moment, with its bias corrected."""
        return tf.sqrt(second) / correction

    def _ratio(self, mean: Tensor, root: Tensor) -> Tensor:
        return mean / root

    def _rescaled(self, second: Tensor, factor: Tensor) -> Tensor:
        return second * factor * factor

    def takes(self, gradients: Sequence[Tensor]) -> Tensor:
        """Whether gradients are finite, and the state after them."""
        return finite([self._weight(gradient) for gradient in gradients])

    def _weight(self, gradient: Tensor) -> Tensor:
        """The largest number that is computed from a gradient for the second moment."""
        return tf.square(gradient)

    def holds(self, factor: float) -> Tensor:
        """Whether the state stays finite if gradients are `factor` times larger."""
        return finite(self._times(factor))

    def rescale(self, factor: Tensor) -> None:
        """Change the state for gradients that are `factor` times larger from now on."""
        slots = [*self.first, *self.second]
        for slot, value in zip(slots, self._times(factor), strict=True):
            slot.assign(self.rounded(value))
        self.gradient_scale.assign(self.gradient_scale * tf.cast(factor, tf.float32))

    def _times(self, factor: Tensor) -> list[Tensor]:
        first = [v * tf.cast(factor, v.dtype) for v in self.first]
        return first + [self._rescaled(v, tf.cast(factor, v.dtype)) for v in self.second]

    def get_config(self) -> dict[str, object]:
        """The configuration without the rounding."""
        return {
            **super().get_config(),
            "learning_rate": self._serialize_hyperparameter(self._learning_rate),
            "betas": self.betas,
            "epsilon": self.epsilon,
            "kahan": self.kahan,
            "gradient_scale": float(self.gradient_scale),
        }


class HAdam(LowPrecisionAdam):
    """Adam that stores w, the root of the second moment, and updates it by hypot (algorithm 1).

    The square of a gradient of 1e-4 is 0 in float16; w underflows only below a gradient of about
    1e-6. Variables with w = 0 are not changed.
    """

    default_name: ClassVar[str] = "HAdam"

    def _moved(self, second: Tensor, gradient: Tensor) -> Tensor:
        beta = self.betas[1]
        return hypot(math.sqrt(beta) * second, math.sqrt(1 - beta) * gradient)

    def _root(self, second: Tensor, correction: Tensor) -> Tensor:
        return second / correction

    def _ratio(self, mean: Tensor, root: Tensor) -> Tensor:
        return tf.math.divide_no_nan(mean, root)

    def _rescaled(self, second: Tensor, factor: Tensor) -> Tensor:
        return second * factor

    def _weight(self, gradient: Tensor) -> Tensor:
        return gradient


def finite(tensors: Sequence[Tensor]) -> Tensor:
    """Whether all numbers are finite, also if rounding makes them a little larger."""
    found = [tf.reduce_all(tf.math.is_finite(tf.cast(MARGIN, x.dtype) * x)) for x in tensors]
    return tf.reduce_all([tf.constant(True), *found])


def hypot(a: Tensor, b: Tensor) -> Tensor:
    """sqrt(a^2 + b^2) of each pair, without underflow or overflow of squares (section 3)."""
    a, b = tf.abs(a), tf.abs(b)
    most = tf.maximum(a, b)
    ratio = tf.math.divide_no_nan(tf.minimum(a, b), most)
    return most * tf.sqrt(1 + tf.square(ratio))
