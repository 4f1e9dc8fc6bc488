"""The training graph as a `tf_keras.Model`. This file imports TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf
import tf_keras as keras

from qgraph.errors import UsageError
from qgraph.foreign import KerasModel, Tensor, TFModule, Variable
from qgraph.ir.graph import Graph
from qgraph.static.agreement import decisions
from qgraph.train.diagnosis import refusing_nan
from qgraph.train.folded import Norm
from qgraph.train.forward import Forward
from qgraph.train.freezing import Freezing
from qgraph.train.losses import classes_of
from qgraph.train.model import TrainingGraph
from qgraph.train.module import by_name, learn, variables_of
from qgraph.train.norms import MOMENTUM
from qgraph.train.optimizer import TqtAdam, adam_for
from qgraph.train.options import Options
from qgraph.train.rate_units import rate_units

Losses: TypeAlias = KerasModel  # a keras.losses.Loss, or a dictionary of them by output

# AutoGraph would rewrite each line of the network, which takes time and prints warnings. Losses and
# metrics, which users write, stay converted.
unconverted = tf.autograph.experimental.do_not_convert


class QuantizedModel(keras.Model):  # type: ignore[misc]
    """A quantized network that compiles and fits like any Keras model.

    Its output is a tensor, or a dictionary by name for several outputs. Evaluation and prediction
    give the numbers of the finalized graph. Without targets (`fit(x)`, `evaluate(x)`), the targets
    are the outputs of `floating`, the float network; see `distillation_loss`. Frozen thresholds do
    not change with any optimizer. Under `tf.distribute`, create it in the scope of the strategy.
    """

    def __init__(
        self,
        graph: Graph,
        floating: Graph,
        norms: Sequence[Norm] = (),
        *,
        momentum: float = MOMENTUM,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.network = TrainingGraph(graph, norms, momentum=momentum)
        quantizers = self.network.quantizers
        self.freezing = Freezing(quantizers.ranges, quantizers.frozen_at_once)
        self.state = variables_of(self.network, self.freezing)  # Keras saves attributes like this
        self._floating, self._teacher = floating, Forward(floating)
        self._norms_frozen, self._refuses_nan = not norms, False
        self._wide: frozenset[str] = self.network.wide
        self.built = True

    # -- contents -----------------------------------------------------------------------------

    @property
    def kernels(self) -> list[Variable]:
        """Weights, biases and multipliers."""
        return self.network.kernels

    @property
    def gammas(self) -> list[Variable]:
        """Scales of batch norms."""
        return self.network.gammas

    @property
    def thresholds(self) -> list[Variable]:
        """The ranges of all scales, one variable."""
        return self.network.thresholds

    @property
    def norms_frozen(self) -> bool:
        """Whether batch norms work as in inference. May be set while `fit` runs."""
        return self._norms_frozen

    @norms_frozen.setter
    def norms_frozen(self, value: bool) -> None:
        changed, self._norms_frozen = value != self._norms_frozen, value
        self._trace_again(changed)

    @property
    def refuses_nan(self) -> bool:
        """Whether NaN or infinity in the loss or a gradient raises an InvalidArgumentError.

        The error names the first value of the graph that is not finite; no variable has changed
        then. May be set while `fit` runs, but not with `jit_compile=True`.
        """
        return self._refuses_nan

    @refuses_nan.setter
    def refuses_nan(self, value: bool) -> None:
        changed, self._refuses_nan = value != self._refuses_nan, value
        self._trace_again(changed)

    def _trace_again(self, changed: bool) -> None:
        if changed and self.train_function is not None:
            self.make_train_function(force=True)

    def finalized(self) -> Graph:
        """The calibrated graph of inference, with the current values of the variables."""
        return self.network.finalized()

    # -- for compile --------------------------------------------------------------------------

    def compile(self, *args: object, **kwargs: object) -> None:
        """Compile as Keras does. Raises UsageError for an optimizer that averages weights."""
        super().compile(*args, **kwargs)
        if getattr(self.optimizer, "use_ema", False):
            raise UsageError(
                "an average of weights (use_ema=True) would move frozen thresholds",
                hint="leave it out; KeepBest keeps the best epoch",
            )

    def tqt_optimizer(self, options: Options | None = None) -> TqtAdam:
        """Adam with the two learning rates of TQT: one for thresholds, one for other variables."""
        with self.distribute_strategy.scope():
            options = options or Options()
            units = () if options.step_rate is None else rate_units(self.network)
            return adam_for(options, self.freezing, units)

    def distillation_loss(self) -> Losses:
        """A loss against the outputs of the float network, for training without labels.

        KL divergence for outputs that are scores of classes, mean squared error for others; a
        dictionary by name for several outputs.
        """
        found = {public: _loss_of(self.network.graph, public) for public in self._outputs}
        return found if len(found) > 1 else found[self._outputs[0]]

    # -- called by Keras ----------------------------------------------------------------------

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Outputs. In training, batch norms that are not frozen use the statistics of the batch,
        and update the running ones.
        """
        return self._computed(inputs, training)

    @unconverted  # type: ignore[untyped-decorator]
    def _computed(self, inputs: Tensor, training: bool | None) -> Tensor:
        fed = by_name(self.network.graph, inputs)
        if not training:
            return self._public(self.network(fed))
        return self._public(learn(self.network, fed, batch_statistics=not self.norms_frozen))

    def train_step(self, data: Tensor) -> Tensor:
        """One step by any optimizer; frozen thresholds do not change."""
        inputs, targets, weights = self._unpacked(data)
        ranges, variables = self.network.quantizers.ranges, self.trainable_variables
        before = tf.identity(ranges)
        with tf.GradientTape() as tape:
            found = self(inputs, training=True)
            loss = self.compute_loss(inputs, targets, found, weights)
        gradients = tape.gradient(
            loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        # Not in the optimizer: `freezing` must observe the gradients of all replicas.
        replica = tf.distribute.get_replica_context()
        gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        if self.refuses_nan:
            fed = by_name(self.network.graph, inputs)
            gradients = refusing_nan(self.network, fed, loss, gradients, not self.norms_frozen)
        pairs = [*zip(gradients, variables, strict=True)]
        self.optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)
        if getattr(self.optimizer, "freezing", None) is not self.freezing:
            self.freezing.hold(before, next(g for g, v in pairs if v is ranges))
        return self.compute_metrics(inputs, targets, found, weights)

    def test_step(self, data: Tensor) -> Tensor:
        """Loss and metrics of inference."""
        inputs, targets, weights = self._unpacked(data)
        found = self._inference(inputs)
        self.compute_loss(inputs, targets, found, weights)
        return self.compute_metrics(inputs, targets, found, weights)

    def predict_step(self, data: Tensor) -> Tensor:
        """Outputs of inference."""
        return self._inference(keras.utils.unpack_x_y_sample_weight(data)[0])

    def make_test_function(self, force: bool = False) -> TFModule:
        """Like the method of Keras, for the current weights."""
        self._update_wide()
        return super().make_test_function(force)

    def make_predict_function(self, force: bool = False) -> TFModule:
        """Like the method of Keras, for the current weights."""
        self._update_wide()
        return super().make_predict_function(force)

    def _update_wide(self) -> None:
        """Find the layers that need float64 with the current weights: float64 is much slower."""
        wide = self.network.wide_now()
        if wide != self._wide:
            self._wide, self.test_function, self.predict_function = wide, None, None

    @unconverted  # type: ignore[untyped-decorator]
    def _inference(self, inputs: Tensor) -> Tensor:
        fed = by_name(self.network.graph, inputs)
        wanted = self.network.graph.outputs.values()
        values, _ = self.network.values(fed, wide=self._wide, wanted=wanted)
        return self._public(self.network.outputs(values))

    def save(self, *args: object, **kwargs: object) -> None:
        """Raise UsageError: a model is created from its training directory, not from a file."""
        raise UsageError(
            "a quantized model cannot be saved as a whole",
            hint="save_weights (ModelCheckpoint: save_weights_only=True) saves its variables; "
            "retrain.save_checkpoint saves it for qgraph finalize",
        )

    def get_config(self) -> dict[str, object]:
        """Configuration that Keras saves with weights."""
        return {"name": self.name}

    @unconverted  # type: ignore[untyped-decorator]
    def _unpacked(self, data: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, targets and sample weights; default targets are the float network's outputs."""
        inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(data)
        if targets is None:
            values = self._teacher(by_name(self._floating, inputs))
            targets = self._public({n: values[v] for n, v in self._floating.outputs.items()})
        return inputs, targets, weights

    @property
    def _outputs(self) -> list[str]:
        return [*self.network.graph.outputs]

    def _public(self, outputs: dict[str, Tensor]) -> Tensor:
        return outputs if len(self._outputs) > 1 else outputs[self._outputs[0]]


class Divergence(keras.losses.Loss):  # type: ignore[misc]
    """KL divergence between wanted and found scores of classes, [..., classes].

    from_logits: both are logits or logarithms of probabilities; otherwise probabilities.
    """

    def __init__(self, from_logits: bool, name: str = "divergence") -> None:
        super().__init__(name=name)
        self.from_logits = from_logits

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """The divergence for each row of classes, [...]."""
        wanted, found = self._logarithm(y_true), self._logarithm(y_pred)
        return tf.reduce_sum(tf.exp(wanted) * (wanted - found), -1)

    def _logarithm(self, y: Tensor) -> Tensor:
        if self.from_logits:
            return tf.nn.log_softmax(y)
        return tf.math.log(tf.maximum(y, np.finfo(np.float32).tiny))

    def get_config(self) -> dict[str, object]:
        """Arguments with which Keras creates the loss again."""
        return {"from_logits": self.from_logits, "name": self.name}


def _loss_of(graph: Graph, public: str) -> Losses:
    value = graph.outputs[public]
    decision = decisions(graph)[list(graph.outputs).index(public)]
    if classes_of(graph.types[value].shape or ()) is None:
        return keras.losses.MeanSquaredError()
    return Divergence(from_logits=not _is_probability(graph, value, decision))


def _is_probability(graph: Graph, value: str, decision: str) -> bool:
    """Whether a softmax lies between the value `decision` and the output `value`."""
    while value != decision:
        node = graph.producer(value)
        if node.op == "softmax":
            return True
        value = node.inputs[0]
    return False
