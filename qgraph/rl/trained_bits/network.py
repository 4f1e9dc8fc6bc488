"""A policy that is trained in few bits: weights of a learner through quantizers of TQT.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf

from qgraph.errors import TrainingError
from qgraph.foreign import Tensor, Variable
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array
from qgraph.numerics import dequantize, quantize
from qgraph.quant.topology import QUANTIZERS
from qgraph.rl.actor import ActorProgram
from qgraph.rl.learn.adam import Adam
from qgraph.train.forward import Forward
from qgraph.train.tqt import TqtQuantizers


class TrainedBits:
    """The network of `program` with weights, activations and ends as codes.

    graph: calibrated, with constants that have the names of weights. thresholds: an optimizer of
    its thresholds, Adam on their logarithms with `rate` (Jain et al., 2019, section 4.2).
    """

    def __init__(self, program: ActorProgram, graph: Graph, rate: float) -> None:
        self.program, self.graph = program, graph
        self.quantizers = TqtQuantizers(graph)
        self.thresholds = Adam(self.quantizers.variables(), rate)
        self._forward = Forward(graph, (*QUANTIZERS, "relu6"))
        (self._output,) = graph.outputs.values()
        self._of_weights = [
            node
            for node in graph.topological()
            if node.op == "quantize" and node.inputs[0] in program.weight_shapes
        ]

    @property
    def state(self) -> dict[str, Variable]:
        """The variables that a resumed run needs, by name, beside the weights."""
        adam = {f"adam/{name}": variable for name, variable in self.thresholds.state.items()}
        return {**self.quantizers.variables(), **adam}

    def __call__(self, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The output [n, m] of observations [n, *shape], with gradients of weights and thresholds.

        Sums are float32: results may differ from `inference` in the last code.
        """
        return self._run(weights, x, ())

    def inference(self, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The same output as the static policy has, bit for bit."""
        return self._run(weights, x, self.quantizers.wide)

    def _run(self, weights: Mapping[str, Tensor], x: Tensor, wide: Collection[str]) -> Tensor:
        constants = {name: tf.convert_to_tensor(value) for name, value in weights.items()}
        run = self.quantizers.replacements(self._forward.pieces, [self._output])
        inputs = {self.program.observation: tf.cast(x, tf.float32)}
        values = self._forward(inputs, constants, run.overrides, {}, wide, run.chains, run.pieces)
        return tf.cast(values[self._output], tf.float32)

    def finalized(self, weights: Mapping[str, Variable]) -> Graph:
        """The graph of inference, with these weights and the current thresholds.

        Raises TrainingError for numbers that are not finite.
        """
        made = self.graph.copy()
        for name, array in {**weights, **self.quantizers.variables()}.items():
            if not np.isfinite(array.numpy()).all():
                raise TrainingError(
                    "training led to NaN or infinity", node=name, hint="a lower learning rate"
                )
        for name, variable in weights.items():
            made.set_attrs(name, value=variable.numpy())
        self.quantizers.finalize(made)
        return made

    def rounded(self, weights: Mapping[str, Variable]) -> dict[str, Array]:
        """The weights as their codes, float32."""
        ranges, found = self.quantizers.scales.unstacked(), {}
        for node in self._of_weights:
            name = node.inputs[0]
            spec = spec_of(node).with_exponent(self.quantizers.scales.exponent(node, ranges))
            found[name] = dequantize(quantize(weights[name].numpy(), spec)).astype(np.float32)
        return found
