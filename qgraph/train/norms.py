"""Batch norms that were folded, at work again while the network trains.

Folding makes `w' = w * gamma / sigma`. What is left of the batch norm is an identity: the batch
norm of `z = conv(x, w')`, with the deviation of `z` for gamma and with its running mean, gives what
the layer and its batch norm gave. Here it learns on from there (docs/numerics.md, 6):
weights are folded with the running statistics, so that quantizers see what inference has, and the
output is corrected by `sigma_running / sigma_batch`. Once the statistics are frozen the correction
is off, and nothing differs from inference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.types import Array
from qgraph.quant.topology import QUANTIZERS

Tensor = Any
MOMENTUM = 0.99  # of running statistics, as Keras has it


@dataclass(frozen=True)
class Norm:
    """What a batch norm knew of the output of `layer`, which it was folded into; [channels].

    `weights` and `bias` name the const nodes that took it in. `mean`, `variance` and `epsilon` are
    of the layer's output as it is now, without bias.
    """

    layer: str
    weights: str
    bias: str
    mean: Array
    variance: Array
    epsilon: Array


def norms_of(graph: Graph) -> tuple[Norm, ...]:
    """Batch norms that were folded into layers of `graph`, from `Graph.moments`."""
    found = []
    for node in graph.topological():
        known = graph.moments.get(node.name)
        if node.op != "bias_add" or known is None or known.epsilon is None:
            continue
        layer = _unquantized(graph, node.inputs[0])
        bias, weights = _unquantized(graph, node.inputs[1]), None
        if layer.op in COMPUTE:
            weights = _unquantized(graph, layer.inputs[1])
        if weights is None or weights.op != "const" or bias.op != "const":
            continue
        offset = np.asarray(bias.attrs["value"], np.float64)
        if known.mean.shape != offset.shape:
            continue
        variance, epsilon = known.deviation**2, known.epsilon
        # A channel that gamma switched off has no unit: any will do.
        epsilon = np.where(variance + epsilon < np.finfo(np.float32).tiny, 1.0, epsilon)
        found.append(
            Norm(layer.name, weights.name, bias.name, known.mean - offset, variance, epsilon)
        )
    return tuple(found)


def _unquantized(graph: Graph, value: str) -> Node:
    node = graph.producer(value)
    while node.op in QUANTIZERS:
        node = graph.producer(node.inputs[0])
    return node


class BatchNorm:
    """A `Norm` that learns: `mean` and `variance` follow the batches, `gamma` is trained.

    `gamma` is in units of what it was when the norm was folded: it starts at 1.
    """

    def __init__(self, norm: Norm, op: str) -> None:
        import tensorflow as tf

        self.norm, self.op = norm, op

        def running(value: Array, name: str) -> Any:
            return tf.Variable(
                tf.cast(value, tf.float32),
                trainable=False,
                name=f"{norm.layer}/{name}".replace(":", "_"),
                aggregation=tf.VariableAggregation.MEAN,  # replicas share what they gather
            )

        self.mean, self.variance = running(norm.mean, "mean"), running(norm.variance, "variance")
        self.epsilon = tf.cast(norm.epsilon, tf.float32)
        self.first_mean = tf.cast(norm.mean, tf.float32)
        self.first_energy = tf.cast(norm.variance, tf.float32) + self.epsilon
        self.gamma = tf.Variable(
            tf.ones_like(self.first_mean), name=f"{norm.layer}/gamma".replace(":", "_")
        )

    def folded(self, weights: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and bias of inference: exactly those given, as long as nothing has moved."""
        import tensorflow as tf

        scale = self._scale()
        shape = weights.shape[2:] if self.op == "depthwise_conv2d" else scale.shape
        return weights * tf.reshape(scale, shape), bias + (self.first_mean - scale * self.mean)

    def corrected(self, z: Tensor, momentum: float) -> tuple[Tensor, list[tuple[Any, Tensor]]]:
        """`z` as statistics of this batch would have it; and what the running ones become.

        z: the layer's output [..., channels] with folded weights, before its bias.
        """
        import tensorflow as tf

        scale = self._scale()
        safe = tf.where(tf.abs(scale) < 1e-12, tf.ones_like(scale), scale)
        mean, variance = tf.nn.moments(z, list(range(z.shape.rank - 1)))
        seen = variance / tf.square(safe)
        unbiased = seen
        if z.shape.rank == 4:  # as TensorFlow has it: the fused op keeps an unbiased variance
            count = tf.cast(tf.size(z) // tf.size(mean), tf.float32)
            unbiased = seen * count / tf.maximum(count - 1, 1)
        ratio = tf.sqrt((self.variance + self.epsilon) / (seen + self.epsilon))
        updates = [
            (self.mean, self.mean + (mean / safe - self.mean) * (1 - momentum)),
            (self.variance, self.variance + (unbiased - self.variance) * (1 - momentum)),
        ]
        return (z - mean) * ratio + scale * self.mean, updates

    def _scale(self) -> Tensor:
        import tensorflow as tf

        # Not a quotient of roots: TensorFlow's graph optimizer would make that a product with a
        # reciprocal root, which is not 1 where nothing has moved, nor what eager mode has.
        return self.gamma * tf.sqrt(self.first_energy / (self.variance + self.epsilon))


class BatchNorms:
    """All batch norms of a training graph."""

    def __init__(self, graph: Graph, norms: tuple[Norm, ...]) -> None:
        self.by_layer: Mapping[str, BatchNorm] = {
            norm.layer: BatchNorm(norm, graph.nodes[norm.layer].op) for norm in norms
        }

    @property
    def gammas(self) -> list[Any]:
        """Trained scales."""
        return [norm.gamma for norm in self.by_layer.values()]

    @property
    def statistics(self) -> list[Any]:
        """Running means and variances."""
        return [v for norm in self.by_layer.values() for v in (norm.mean, norm.variance)]

    def folded(self, constants: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`constants` by const node, those of layers with a batch norm folded."""
        made = dict(constants)
        for norm in self.by_layer.values():
            weights, bias = norm.norm.weights, norm.norm.bias
            made[weights], made[bias] = norm.folded(constants[weights], constants[bias])
        return made
