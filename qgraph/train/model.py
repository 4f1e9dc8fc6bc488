"""A calibrated graph whose weights, biases and thresholds are variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import QuantSpec
from qgraph.quant.topology import QUANTIZERS, sources
from qgraph.train.forward import Forward, piece_of
from qgraph.train.quantizer import quantize
from qgraph.train.state import State, state_of

Tensor = Any


class TrainingGraph:
    """A quantized graph that learns: `kernels` and `thresholds` are its variables.

    graph: calibrated. Called, inside a `tf.function`, with tensors by input name it gives its
    outputs by public name, every quantized number on the grid that inference has.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.state: State = state_of(graph)
        self.functions = {
            node.name: piece_of(
                graph, Node(node.name, node.attrs["function"], node.inputs, node.attrs), "float64"
            )
            for node in graph.topological()
            if node.op == "lookup"
        }
        overrides = {"quantize": self._quantize, "lookup": self._lookup, "relu6": self._relu6}
        self._forward = Forward(graph, overrides)

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._forward(inputs, self.state.constants)

    @property
    def kernels(self) -> list[Any]:
        """Weights, biases and multipliers."""
        return list(self.state.constants.values())

    @property
    def thresholds(self) -> list[Any]:
        """Ranges of scale groups, and of quantizers that are in none (`State.ranges`)."""
        return list(self.state.ranges.values())

    def finalized(self) -> Graph:
        """A calibrated graph with the constants and exponents that the variables have now."""
        made = self.graph.copy()
        for name, variable in self.state.constants.items():
            made.set_attrs(name, value=np.asarray(variable.numpy()))
        for node in list(made.topological()):
            if node.op in QUANTIZERS:
                spec: QuantSpec = node.attrs["spec"]
                made.set_attrs(node.name, spec=spec.with_exponent(self.state.exponent(node)))
        return made

    # -- ops that depend on a scale -----------------------------------------------------------

    def _quantize(self, node: Node, x: Tensor) -> Tensor:
        spec: QuantSpec = node.attrs["spec"]
        return quantize(x, self.state.log2_t(node), spec.bits, spec.signed, spec.rounding)

    def _lookup(self, node: Node, x: Tensor) -> Tensor:
        """The function in float64, as the entries of its table are made."""
        import tensorflow as tf

        (wide,) = self.functions[node.name](tf.cast(x, tf.float64))
        return self._quantize(node, tf.cast(wide, tf.float32))

    def _relu6(self, node: Node, x: Tensor) -> Tensor:
        """On a grid the clip is at the grid point nearest to 6."""
        import tensorflow as tf

        members = sources(self.graph, node.inputs[0])
        if not members:
            return tf.nn.relu6(x)
        source = self.graph.nodes[members[0]]
        spec: QuantSpec = source.attrs["spec"]
        log2_t = tf.stop_gradient(self.state.log2_t(source))
        scale = tf.pow(2.0, tf.math.ceil(log2_t) - float(spec.bits - spec.signed))
        return tf.minimum(tf.nn.relu(x), tf.round(6.0 / scale) * scale)
