"""Adam as one fused op for each variable, with a state by name for checkpoints.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from qgraph.foreign import Tensor, Variable


class Adam:
    """Updates `variables` (Kingma and Ba, 2015). `state` is its state, by name. `beside` are
    optimizers of other variables of the same loss.

    norm: gradients are scaled down together if their norm is larger; 0 leaves them. epsilon: added
    to the root of the second moment, so that small gradients change less.
    """

    def __init__(
        self,
        variables: Mapping[str, Variable],
        rate: float,
        norm: float = 0.0,
        epsilon: float = 1e-8,
    ) -> None:
        self.variables, self.rate, self.norm, self.epsilon = variables, rate, norm, epsilon
        self.beside: list[Adam] = []
        self.state: dict[str, Tensor] = {
            f"{moment}/{name}": tf.Variable(tf.zeros_like(variable), trainable=False)
            for moment in ("first", "second")
            for name, variable in variables.items()
        }
        self.state["powers"] = tf.Variable(
            [0.9, 0.999], trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )

    def descend(self, tape: tf.GradientTape, loss: Tensor) -> None:
        """One step of this optimizer and those `beside` it down `loss`, which `tape` recorded."""
        gradients = self.gradients(tape, loss)
        # The mean over replicas; unchanged for a single one.
        self.apply_all(tf.distribute.get_replica_context().all_reduce("MEAN", gradients))

    def gradients(self, tape: tf.GradientTape, loss: Tensor) -> list[dict[str, Tensor]]:
        """The gradients of this optimizer's variables, and of those of each one `beside` it."""
        found: list[dict[str, Tensor]] = tape.gradient(
            loss, [dict(part.variables) for part in (self, *self.beside)]
        )
        return found

    def apply_all(
        self, gradients: Sequence[Mapping[str, Tensor]], share: Tensor | float = 1.0
    ) -> None:
        """One step with what `gradients` returns, at this share of the rates."""
        for part, found in zip((self, *self.beside), gradients, strict=True):
            part.apply(found, share)

    def apply(self, gradients: Mapping[str, Tensor], share: Tensor | float = 1.0) -> None:
        """One step with these gradients, at this share of the rate."""
        if self.norm:
            clipped, _ = tf.clip_by_global_norm(list(gradients.values()), self.norm)
            gradients = dict(zip(gradients, clipped, strict=True))
        powers = self.state["powers"]
        for name, gradient in gradients.items():
            tf.raw_ops.ResourceApplyAdam(
                var=self.variables[name].handle,
                m=self.state[f"first/{name}"].handle,
                v=self.state[f"second/{name}"].handle,
                beta1_power=powers[0],
                beta2_power=powers[1],
                lr=self.rate * share,
                beta1=0.9,
                beta2=0.999,
                epsilon=self.epsilon,
                grad=gradient,
            )
        powers.assign(powers * [0.9, 0.999])
