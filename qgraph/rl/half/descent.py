"""A step down a loss whose gradients may underflow or overflow (compound loss scaling).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from qgraph.foreign import Tensor, Variable
from qgraph.rl.half.hadam import CLIPS, LowPrecisionAdam, finite
from qgraph.rl.half.scaling import LossScale
from qgraph.rl.learn.adam import Adam


class Descent:
    """Updates `variables` by `optimizer`, one of this package.

    scale       None: gradients are used as they are, infinite ones too. Otherwise a step with
                gradients that are not finite is skipped, and the scale is halved; with `compound`
                also if their squares are not finite and the optimizer squares them
    compound    the optimizer's state has scaled gradients, and is rescaled with the scale (section
                3, method 5); otherwise gradients are divided by the scale first. Raises UsageError
                for an optimizer that clips gradients
    beside      an optimizer of other variables of the same loss, for a Descent without `scale`
    """

    def __init__(
        self,
        variables: Mapping[str, Variable],
        optimizer: LowPrecisionAdam,
        scale: LossScale | None = None,
        *,
        compound: bool = False,
    ) -> None:
        self.variables, self.optimizer = variables, optimizer
        self.scale, self.compound = scale, compound
        self.beside: Adam | None = None
        if compound:
            optimizer.check_without(CLIPS, "compound scaling: scaled gradients would be clipped")
        optimizer.build(list(variables.values()))
        if scale is not None and compound:  # its state may have gradients already
            optimizer.rescale(scale.value / optimizer.gradient_scale)

    @property
    def state(self) -> dict[str, Variable]:
        """The variables that a resumed run needs, by name."""
        scale = {} if self.scale is None else self.scale.state
        return {**self.optimizer.state, **{f"scale/{name}": v for name, v in scale.items()}}

    def minimize(self, tape: tf.GradientTape, loss: Tensor) -> None:
        """One step down `loss`, recorded by `tape`."""
        variables = list(self.variables.values())
        if self.scale is None:
            others = {} if self.beside is None else dict(self.beside.variables)
            own, other = tape.gradient(loss, (variables, others))
            self._apply(own)
            if self.beside is not None:
                self.beside.apply(other)
        else:
            # Gradients are scaled at their start, since the scaled loss may be infinite.
            scale = tf.cast(self.scale.value, loss.dtype)
            self._scaled(tape.gradient(loss, variables, output_gradients=scale), self.scale)

    def _scaled(self, gradients: list[Tensor | None], scale: LossScale) -> None:
        """Apply scaled gradients; None for a variable that the loss does not depend on."""
        rounded = [g if g is None else self._rounded(g) for g in gradients]
        there = [g for g in rounded if g is not None]
        fine = self.optimizer.takes(there) if self.compound else finite(there)
        if not self.compound:
            rounded = [g if g is None else g / tf.cast(scale.value, g.dtype) for g in rounded]
        tf.cond(fine, lambda: self._apply(rounded), lambda: None)
        factor = scale.update(fine, self._holds_more(fine, scale))
        if self.compound:
            tf.cond(factor == 1, lambda: None, lambda: self.optimizer.rescale(factor))

    def _holds_more(self, fine: Tensor, scale: LossScale) -> Tensor:
        """Whether the optimizer's state stays finite at twice the scale, if that is due."""
        if not self.compound:
            return True
        doubles_next = tf.logical_and(fine, scale.doubles_next())
        return tf.cond(doubles_next, lambda: self.optimizer.holds(2.0), lambda: tf.constant(True))

    def _apply(self, gradients: list[Tensor | None]) -> None:
        rounded = [g if g is None else self._rounded(g) for g in gradients]
        pairs = zip(rounded, self.variables.values(), strict=True)
        self.optimizer.apply_gradients([(g, v) for g, v in pairs if g is not None])

    def _rounded(self, gradient: Tensor) -> Tensor:
        return self.optimizer.rounded(tf.convert_to_tensor(gradient))
