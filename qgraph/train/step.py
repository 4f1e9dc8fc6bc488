"""One step of training, and one of evaluation, as compiled functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from qgraph.choices import LossKind
from qgraph.foreign import KerasModel, Tensor, TFModule, Variable
from qgraph.ir.graph import Graph
from qgraph.train.forward import Forward
from qgraph.train.losses import Loss
from qgraph.train.model import TrainingGraph


class Steps:
    """`train` and `evaluate` for batches of a training graph.

    floating: the float graph, the teacher of losses without labels. variables: those to train.
    norms_frozen: whether batch norms work as in inference. wide: nodes that evaluation computes in
    float64. A change of `norms_frozen` or `wide` makes the next step compile again.
    """

    def __init__(
        self,
        graph: TrainingGraph,
        floating: Graph,
        loss: Loss,
        optimizer: KerasModel,
        variables: Sequence[Variable],
        weight_decay: float = 0.0,
    ) -> None:
        import tensorflow as tf

        self.graph, self.loss, self.optimizer = graph, loss, optimizer
        self.variables, self.weight_decay = list(variables), weight_decay
        self.teacher = Forward(floating) if loss.kind != LossKind.LABELS else None
        self.norms_frozen = not graph.norms.by_layer
        self.wide = graph.wide
        optimizer.build(self.variables)
        self._train = tf.function(self._train_step, reduce_retracing=True, autograph=False)
        self._evaluate = self._compiled_evaluation()

    def train(self, inputs: Mapping[str, Tensor], labels: Tensor | None) -> tuple[Tensor, ...]:
        """One step: the loss, the number of right answers, whether all numbers were finite, and the
        gradient of the thresholds [scales].

        If a number is not finite, no variable changes.
        """
        made: tuple[Tensor, ...] = self._train(inputs, labels, self.norms_frozen)
        return made

    def evaluate(self, inputs: Mapping[str, Tensor], labels: Tensor | None) -> tuple[Tensor, ...]:
        """The loss and the number of right answers, computed as in inference."""
        if self._evaluate.python_function.keywords["wide"] != self.wide:
            self._evaluate = self._compiled_evaluation()
        made: tuple[Tensor, ...] = self._evaluate(inputs, labels)
        return made

    def _compiled_evaluation(self) -> TFModule:
        """A compiled function for `wide`. TensorFlow warns about functions that it traces often."""
        import tensorflow as tf

        step = partial(self._evaluate_step, wide=self.wide)
        return tf.function(step, reduce_retracing=True, autograph=False)

    def _taught(self, inputs: Mapping[str, Tensor]) -> Tensor | None:
        return self.teacher(inputs)[self.loss.teacher] if self.teacher else None

    def _train_step(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None, norms_frozen: bool
    ) -> tuple[Tensor, ...]:
        import tensorflow as tf

        taught = self._taught(inputs)
        with tf.GradientTape() as tape:
            values, updates = self.graph.values(
                inputs, batch_statistics=not norms_frozen, wanted=[self.loss.value]
            )
            found = values[self.loss.value]
            loss = self.loss(found, taught, labels)
            total = loss + self._decay() + self.graph.quantizers.penalty()
        gradients = tape.gradient(
            total, self.variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        # Adam keeps squares of gradients: an overflow there would spoil a later step.
        sums = [total, *(tf.reduce_sum(tf.square(gradient)) for gradient in gradients)]
        finite = tf.reduce_all(tf.math.is_finite(tf.stack(sums)))

        def apply() -> Tensor:
            for variable, value in updates:
                variable.assign(value)
            self.optimizer.apply_gradients(zip(gradients, self.variables, strict=True))
            return tf.constant(True)

        tf.cond(finite, apply, lambda: tf.constant(False))
        ranges = self.graph.quantizers.ranges
        by_variable = {id(v): g for v, g in zip(self.variables, gradients, strict=True)}
        gradient = by_variable.get(id(ranges), tf.zeros_like(ranges))
        return loss, self.loss.right(found, taught, labels), finite, gradient

    def _decay(self) -> Tensor:
        import tensorflow as tf

        if not self.weight_decay:
            return 0.0
        weights = [v for v in self.graph.kernels if v.shape.rank and v.shape.rank > 1]
        return self.weight_decay * sum((tf.nn.l2_loss(v) for v in weights), tf.constant(0.0))

    def _evaluate_step(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None, wide: frozenset[str]
    ) -> tuple[Tensor, ...]:
        import tensorflow as tf

        taught = self._taught(inputs)
        values, _ = self.graph.values(inputs, wide=wide, wanted=[self.loss.value])
        found = tf.cast(values[self.loss.value], tf.float32)
        return self.loss(found, taught, labels), self.loss.right(found, taught, labels)
