"""One step of training, and one of evaluation, as compiled functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from qgraph.choices import LossKind
from qgraph.foreign import KerasModel, Tensor, TFModule, Variable
from qgraph.ir.graph import Graph
from qgraph.train.forward import Forward
from qgraph.train.losses import Loss, Values
from qgraph.train.model import TrainingGraph
from qgraph.train.norms import Update
from qgraph.train.replicas import Replicas


class Steps:
    """`train` and `evaluate` for batches of a training graph.

    floating: the float graph, the teacher of losses without labels. variables: those to train.
    norms_frozen: whether batch norms work as in inference. wide: nodes that evaluation computes in
    float64. A change of `norms_frozen` or `wide` makes the next step compile again. replicas: they
    share each batch; graph and optimizer must be created in their scope.
    """

    def __init__(
        self,
        graph: TrainingGraph,
        floating: Graph,
        loss: Loss,
        optimizer: KerasModel,
        variables: Sequence[Variable],
        weight_decay: float = 0.0,
        replicas: Replicas | None = None,
    ) -> None:
        import tensorflow as tf

        self.replicas = replicas or Replicas(tf.distribute.get_strategy())
        self.graph, self.loss, self.optimizer = graph, loss, optimizer
        self.variables, self.weight_decay = list(variables), weight_decay
        self.teacher = Forward(floating) if loss.kind != LossKind.LABELS else None
        self.norms_frozen = not graph.norms.by_layer
        self.wide = graph.wide
        optimizer.build(self.variables)
        self._train = tf.function(self._train_step, reduce_retracing=True, autograph=False)
        self._evaluate = self._compiled_evaluation()

    def train(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None, share: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """One step: the loss, the number of right answers, whether all numbers were finite, and the
        gradient of the thresholds [scales].

        If a number is not finite, no variable changes. With several replicas, arguments have a
        value for each of them; `share` is that of its samples in the batch.
        """
        made: tuple[Tensor, ...] = self._train(inputs, labels, share, self.norms_frozen)
        return made

    def evaluate(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None, share: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The loss and the number of right answers, computed as in inference.

        Only this worker's replicas take part; `share` as in `train`.
        """
        if self._evaluate.python_function.keywords["wide"] != self.wide:
            self._evaluate = self._compiled_evaluation()
        made: tuple[Tensor, ...] = self._evaluate(inputs, labels, share)
        return made

    def compile_with_xla(self) -> None:
        """Compile the steps of `train` with XLA."""
        import tensorflow as tf

        self._train = tf.function(self._train_step, jit_compile=True, autograph=False)

    def _compiled_evaluation(self) -> TFModule:
        """A compiled function for `wide`. TensorFlow warns about functions that it traces often."""
        import tensorflow as tf

        step = partial(self._evaluate_step, wide=self.wide)
        return tf.function(step, reduce_retracing=True, autograph=False)

    def _targets(self, inputs: Values) -> Values:
        return self.teacher(inputs) if self.teacher else {}

    def _train_step(
        self,
        inputs: Mapping[str, Tensor],
        labels: Tensor | None,
        share: Tensor | None,
        norms_frozen: bool,
    ) -> tuple[Tensor, ...]:
        import tensorflow as tf

        run, updated = self.replicas.run, list[Variable]()

        def learn(inputs: Tensor, labels: Tensor, share: Tensor) -> tuple[Tensor, ...]:
            found, updates = self._learn(inputs, labels, share, norms_frozen)
            updated[:] = [variable for variable, _ in updates]
            return (*found, [value for _, value in updates])

        summed, gradients, values = run(learn, inputs, labels, share)
        loss, right, total = (self.replicas.values(x)[0] for x in summed)
        first = [self.replicas.values(gradient)[0] for gradient in gradients]
        # Adam keeps squares of gradients: an overflow there would spoil a later step.
        sums = [total, *map(tf.nn.l2_loss, first)]
        finite = tf.reduce_all(tf.math.is_finite(tf.stack(sums)))

        def apply(gradients: Sequence[Tensor], values: Sequence[Tensor]) -> None:
            for variable, value in zip(updated, values, strict=True):
                variable.assign(value)
            pairs = zip(gradients, self.variables, strict=True)
            self.optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)

        def applied() -> Tensor:
            run(apply, gradients, values)
            return tf.constant(True)

        tf.cond(finite, applied, lambda: tf.constant(False))
        ranges = self.graph.quantizers.ranges
        by_variable = {id(v): g for v, g in zip(self.variables, first, strict=True)}
        gradient = by_variable.get(id(ranges), tf.zeros_like(ranges))
        return loss, right, finite, gradient

    def _learn(
        self,
        inputs: Mapping[str, Tensor],
        labels: Tensor | None,
        share: Tensor | None,
        norms_frozen: bool,
    ) -> tuple[tuple[list[Tensor], list[Tensor]], list[Update]]:
        """On one replica: loss, right answers and loss with decay, and gradients; all are sums over
        the replicas. Then the updates of running statistics."""
        import tensorflow as tf

        targets = self._targets(inputs)
        with tf.GradientTape() as tape:
            found, updates = self.graph.values(
                inputs, batch_statistics=not norms_frozen, wanted=self.loss.values
            )
            loss = self.loss(found, targets, labels)
            total = loss + self._decay() + self.graph.quantizers.penalty()
            if share is not None:
                loss, total = loss * share, total * share
        gradients = tape.gradient(
            total, self.variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        right = self._right(found, targets, labels, share)
        summed = [loss, right, total]
        if self.replicas.count > 1:
            replica = tf.distribute.get_replica_context()
            summed = replica.all_reduce(tf.distribute.ReduceOp.SUM, summed)
            gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        return (summed, gradients), updates

    def _right(
        self, found: Values, targets: Values, labels: Tensor | None, share: Tensor | None
    ) -> Tensor:
        """The number of right answers, float32; 0 for a replica that has no samples of its own."""
        import tensorflow as tf

        right = tf.cast(self.loss.right(found, targets, labels), tf.float32)
        return right if share is None else tf.where(share > 0, right, 0.0)

    def _decay(self) -> Tensor:
        import tensorflow as tf

        if not self.weight_decay:
            return 0.0
        weights = [v for v in self.graph.kernels if v.shape.rank and v.shape.rank > 1]
        return self.weight_decay * sum((tf.nn.l2_loss(v) for v in weights), tf.constant(0.0))

    def _evaluate_step(
        self,
        inputs: Mapping[str, Tensor],
        labels: Tensor | None,
        share: Tensor | None,
        wide: frozenset[str],
    ) -> tuple[Tensor, ...]:
        import tensorflow as tf

        def evaluate(inputs: Tensor, labels: Tensor, share: Tensor) -> tuple[Tensor, ...]:
            targets = self._targets(inputs)
            values, _ = self.graph.values(inputs, wide=wide, wanted=self.loss.values)
            found = {name: tf.cast(values[name], tf.float32) for name in self.loss.values}
            loss = self.loss(found, targets, labels)
            right = self._right(found, targets, labels, share)
            return (loss if share is None else loss * share), right

        found = self.replicas.run(evaluate, inputs, labels, share)
        return tuple(tf.add_n(self.replicas.values(x)) for x in found)
