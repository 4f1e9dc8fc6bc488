"""Batch norms that were folded into layers and are active again during training.

Folding gives the weights `w' = w * gamma / sigma`. A batch norm of `z = conv(x, w')`, with the
deviation of `z` as gamma and its running mean, changes nothing. Training starts from this batch
norm (docs/numerics.md, 6). Weights are folded with the running statistics, so that quantizers get
the numbers of inference, and the output is corrected by `sigma_running / sigma_batch`. When the
statistics are frozen, the correction is off, and training computes what inference does. A batch
norm that was folded into the next layer works in the same way on the input of that layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qgraph.foreign import Tensor, Variable
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.train.folded import Norm

# A variable and its new value.
Update = tuple[Tensor, Tensor]
MOMENTUM = 0.99  # of running statistics, as in Keras
EPSILON = 1e-3  # as in Keras


class RunningStatistics:
    """The running mean and variance [channels] of a value, and their initial values."""

    def __init__(self, norm: Norm) -> None:
        import tensorflow as tf

        def running(value: Array, name: str) -> Tensor:
            return tf.Variable(
                tf.cast(value, tf.float32),
                trainable=False,
                name=f"{norm.layer}/{name}".replace(":", "_"),
                aggregation=tf.VariableAggregation.MEAN,  # over replicas
            )

        self.mean, self.variance = running(norm.mean, "mean"), running(norm.variance, "variance")
        self.epsilon = tf.cast(norm.epsilon, tf.float32)
        self.first_mean = tf.cast(norm.mean, tf.float32)
        self.first_energy = tf.cast(norm.variance, tf.float32) + self.epsilon
        least = tf.maximum(1e-12 * self.first_energy, np.finfo(np.float32).tiny)
        self.safe_epsilon = tf.maximum(self.epsilon, least)

    def scale(self) -> Tensor:
        """The initial deviation over the current one: 1 until the variance changes."""
        import tensorflow as tf

        # Not a quotient of roots: TensorFlow's graph optimizer would rewrite it as a product with a
        # reciprocal root, which is not exactly 1 at first and differs from eager mode.
        return tf.sqrt(self.first_energy / (self.variance + self.epsilon))

    def normalized(
        self, x: Tensor, gain: Tensor, constant: Tensor, momentum: float
    ) -> tuple[Tensor, list[Update]]:
        """Normalize x by the statistics of its batch instead of the running ones.

        x: [..., channels], `gain * (v - constant)`, where v has the running statistics. Returns
        `gain * (w - constant)`, where w is v, normalized by the statistics of the batch and scaled
        to the running ones; and the updates of the running statistics.
        """
        import tensorflow as tf

        size = _size(gain)
        # Scaled so that epsilon is the same for all channels, as TensorFlow's op requires.
        unit = tf.sqrt(EPSILON / self.safe_epsilon) / size
        shape = tf.shape(x)
        made = tf.raw_ops.FusedBatchNormV3(
            x=tf.reshape(_scaled(x, unit), [shape[0], -1, 1, x.shape[-1]]),
            scale=size * tf.sqrt(self.variance + self.epsilon),
            offset=gain * (self.mean - constant),
            mean=[],
            variance=[],
            epsilon=EPSILON,
        )
        mean, variance = made.batch_mean / unit, made.batch_variance / tf.square(unit)
        if x.shape.rank != 4:  # as in Keras, whose op for other ranks has a biased variance
            count, least = _counts(x, mean)
            variance *= least / count
        updates = self._updates(mean, variance, gain, constant, momentum)
        return tf.ensure_shape(tf.reshape(made.y, shape), x.shape), updates

    def scale_of_batch(self, variance: Tensor, gain: Tensor) -> Tensor:
        """The factor of `x - mean` in `normalized`, from the biased variance of x."""
        import tensorflow as tf

        of_batch = variance / tf.square(_size(gain)) + self.safe_epsilon
        return tf.sqrt((self.variance + self.epsilon) / of_batch)

    def updates_from(
        self,
        x: Tensor,
        mean: Tensor,
        variance: Tensor,
        gain: Tensor,
        constant: Tensor,
        momentum: float,
    ) -> list[Update]:
        """The updates of `normalized`, from the mean and the biased variance of x."""
        if x.shape.rank == 4:
            count, least = _counts(x, mean)
            variance *= count / least
        return self._updates(mean, variance, gain, constant, momentum)

    def _updates(
        self, mean: Tensor, variance: Tensor, gain: Tensor, constant: Tensor, momentum: float
    ) -> list[Update]:
        """The updates for the moments of `gain * (v - constant)`."""
        import tensorflow as tf

        size = _size(gain)
        mean = mean / tf.where(gain < 0, -size, size) + constant
        variance = variance / tf.square(size)
        moved = []
        for variable, value in ((self.mean, mean), (self.variance, variance)):
            before = tf.convert_to_tensor(variable)  # read once
            moved.append((variable, before + (value - before) * (1 - momentum)))
        return moved


def _size(gain: Tensor) -> Tensor:
    """|gain|, or 1 for channels that are switched off."""
    import tensorflow as tf

    return tf.where(tf.abs(gain) < 1e-12, tf.ones_like(gain), tf.abs(gain))


def _counts(x: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """The size of a channel, and the divisor of its unbiased variance."""
    import tensorflow as tf

    count = tf.cast(tf.size(x) // tf.size(mean), tf.float32)
    return count, tf.maximum(count - 1, 1)


def _scaled(x: Tensor, unit: Tensor) -> Tensor:
    """`x * unit`. The backward pass needs only the result, which is kept anyway, not x."""
    import tensorflow as tf

    def run(x: Tensor, unit: Tensor) -> Tensor:
        made = x * unit

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            along = tf.reduce_sum(upstream * made, list(range(x.shape.rank - 1)))
            return upstream * unit, along / unit

        return made, gradient

    return tf.custom_gradient(run)(x, unit)


class OutputNorm(RunningStatistics):
    """The batch norm of a layer's output; `gamma` is relative to the folded one: 1 at first."""

    def __init__(self, norm: Norm) -> None:
        import tensorflow as tf

        super().__init__(norm)
        name = f"{norm.layer}/gamma".replace(":", "_")
        self.gamma = tf.Variable(tf.ones_like(self.first_mean), name=name)

    def gain(self) -> Tensor:
        """Factor of the weights, [channels]."""
        return self.gamma * self.scale()

    def offset(self, constant: Tensor, gain: Tensor) -> Tensor:
        """The bias [channels]. constant: a sum added to the output before the batch norm."""
        return (self.first_mean - gain * self.mean) + gain * constant

    def corrected(
        self, z: Tensor, constant: Tensor, momentum: float
    ) -> tuple[Tensor, list[Update]]:
        """`z`, the output of folded weights, normalized by the statistics of this batch."""
        return self.normalized(z, self.gain(), constant, momentum)


class InputNorm(RunningStatistics):
    """The batch norm of a layer's input; its gamma and beta were folded into weights and bias."""

    def corrected(self, x: Tensor, momentum: float) -> tuple[Tensor, list[Update]]:
        """`x`, normalized by the statistics of this batch, for folded weights."""
        import tensorflow as tf

        return self.normalized(x, tf.ones_like(self.mean), tf.constant(0.0), momentum)

    def offset(self) -> Tensor:
        """Offset of each input channel, to be multiplied by weights."""
        return self.first_mean - self.scale() * self.mean


class NormedLayer:
    """A layer with batch norms of its input, of its output, or of both."""

    def __init__(self, op: str, norms: Sequence[Norm]) -> None:
        self.op = op
        self.weights, self.bias = norms[0].weights, norms[0].bias
        by_side = {norm.side: norm for norm in norms}
        self.output = OutputNorm(by_side["output"]) if "output" in by_side else None
        self.input = InputNorm(by_side["input"]) if "input" in by_side else None

    def folded(self, weights: Tensor, bias: Tensor, gain: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights and bias of inference: exactly those given, until statistics or gamma change.

        gain: of the output's norm.
        """
        constant = self.constant(weights)
        if self.input is not None:
            weights = weights * self._on_inputs(weights, self.input.scale())
        if self.output is None or gain is None:
            return weights, bias + constant
        offset = self.output.offset(constant, gain)
        return weights * self._on_outputs(weights, gain), bias + offset

    def run(
        self,
        weights: Tensor,
        layer: Callable[..., Tensor],
        inputs: Sequence[Tensor],
        momentum: float,
        *,
        pending: bool = False,
        normed: bool = False,
    ) -> tuple[Tensor, list[Update]]:
        """Run `layer` on x and folded weights, with the statistics of this batch.

        weights: the weights before folding. pending: leaves out the norm of the output. normed:
        leaves out that of the input, which `layer` computes. Returns the output without bias, and
        the updates of running statistics.
        """
        x, *rest = inputs
        updates: list[Update] = []
        if self.input is not None and not normed:
            x, updates = self.input.corrected(x, momentum)
        (y,) = layer(x, *rest)
        if self.output is not None and not pending:
            y, more = self.output.corrected(y, self.constant(weights), momentum)
            updates = [*updates, *more]
        return y, updates

    def constant(self, weights: Tensor) -> Tensor:
        """The sum that the input's norm adds to each output channel, before the output's norm."""
        import tensorflow as tf

        if self.input is None:
            return tf.constant(0.0)
        each = weights * self._on_inputs(weights, self.input.offset())
        if self.op == "depthwise_conv2d":
            return tf.reshape(tf.reduce_sum(each, [0, 1]), [-1])
        return tf.reduce_sum(each, list(range(weights.shape.rank - 1)))

    def _on_inputs(self, weights: Tensor, values: Tensor) -> Tensor:
        import tensorflow as tf

        return tf.reshape(values, [-1, 1]) if weights.shape.rank > 1 else values

    def _on_outputs(self, weights: Tensor, values: Tensor) -> Tensor:
        import tensorflow as tf

        shape = weights.shape[2:] if self.op == "depthwise_conv2d" else values.shape
        return tf.reshape(values, shape)


class BatchNorms:
    """All batch norms of a training graph."""

    def __init__(self, graph: Graph, norms: Sequence[Norm]) -> None:
        of_layer: dict[str, list[Norm]] = {}
        for norm in norms:
            of_layer.setdefault(norm.layer, []).append(norm)
        self.by_layer: Mapping[str, NormedLayer] = {
            name: NormedLayer(graph.nodes[name].op, found) for name, found in of_layer.items()
        }

    @property
    def gammas(self) -> list[Variable]:
        """Trained scales."""
        return [n.output.gamma for n in self.by_layer.values() if n.output is not None]

    @property
    def statistics(self) -> list[Variable]:
        """Running means and variances."""
        return [v for name, v in self.named_variables().items() if not name.startswith("gamma/")]

    def named_variables(self) -> dict[str, Variable]:
        """All variables, by names that do not change between versions."""
        found: dict[str, Variable] = {}
        for name, layer in self.by_layer.items():
            if layer.output is not None:
                found[f"gamma/{name}"] = layer.output.gamma
            for side, norm in (("output", layer.output), ("input", layer.input)):
                if norm is not None:
                    found[f"{side}-mean/{name}"] = norm.mean
                    found[f"{side}-variance/{name}"] = norm.variance
        return found

    def gains(self) -> dict[str, Tensor]:
        """The gains of norms of outputs, by layer."""
        return {
            name: layer.output.gain()
            for name, layer in self.by_layer.items()
            if layer.output is not None
        }

    def folded(
        self, constants: Mapping[str, Tensor], gains: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """`constants` by const node, with batch norms folded into weights and biases.

        gains: as `gains` returns them; computing them once saves many small ops.
        """
        made = dict(constants)
        for name, layer in self.by_layer.items():
            weights, bias = layer.weights, layer.bias
            given = constants[weights], constants[bias], gains.get(name)
            made[weights], made[bias] = layer.folded(*given)
        return made
