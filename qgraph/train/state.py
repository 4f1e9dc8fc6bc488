"""What a training graph learns: its constants and the ranges of its scales, as variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.types import QuantSpec
from qgraph.quant.topology import QUANTIZERS

TRAINED = ("weight", "bias", "scale")
# Halfway between the thresholds that round up to the calibrated power of two.
START = -0.5


@dataclass(frozen=True)
class State:
    """Variables of a training graph.

    `constants` by const node. `ranges` by scale group, or by quantizer where it has no group: a
    float32 scalar `r` for the scale `2^ceil(r)`; the threshold of a member of b bits and sign s has
    `log2_t = r + b - s`. `fixed` are exponents that nothing trains. `follows` has the quantizers
    whose scales multiply to that of a bias at its accumulator's scale.
    """

    constants: Mapping[str, Any]
    ranges: Mapping[str, Any]
    fixed: Mapping[str, int]
    follows: Mapping[str, tuple[Node, ...]]

    def log2_t(self, node: Node) -> Any:
        """The logarithm of the threshold of a quantizer, a float32 scalar tensor."""
        spec: QuantSpec = node.attrs["spec"]
        return self._range(node) + float(spec.bits - int(spec.signed))

    def exponent(self, node: Node) -> int:
        """The exponent that a quantizer has now."""
        return -int(np.ceil(np.asarray(self._range(node))))

    def _range(self, node: Node) -> Any:
        import tensorflow as tf

        if node.name in self.fixed:
            return tf.constant(-float(self.fixed[node.name]))
        if node.name in self.follows:
            parts = [tf.math.ceil(self._range(part)) for part in self.follows[node.name]]
            return tf.stop_gradient(tf.add_n(parts))
        return self.ranges[_key(node)]


def state_of(graph: Graph) -> State:
    """Variables for a calibrated graph. Raises UnsupportedError for what cannot be trained."""
    import tensorflow as tf

    constants: dict[str, Any] = {}
    ranges: dict[str, Any] = {}
    fixed: dict[str, int] = {}
    follows: dict[str, tuple[Node, ...]] = {}
    for node in (n for n in graph.topological() if n.op in QUANTIZERS):
        spec: QuantSpec = node.attrs["spec"]
        if not isinstance(spec.exponent, int) or spec.overflow == "wrap":
            what = "values that wrap" if spec.overflow == "wrap" else "scales per channel"
            raise UnsupportedError(f"{what} cannot be trained yet", node=node.name)
        source, value = node.inputs[0], graph.constant(node.inputs[0])
        if value is not None and spec.role in TRAINED and source not in constants:
            constants[source] = tf.Variable(value, name=_plain(source))
        if spec.group is None and spec.role == "constant":
            fixed[node.name] = spec.exponent
        elif spec.group is None and spec.role == "bias":
            (user,) = graph.users(node.name)
            follows[node.name] = _factors(graph, user.inputs[0])
        elif _key(node) not in ranges:
            start = np.float32(-spec.exponent + START)
            ranges[_key(node)] = tf.Variable(start, name=_plain(f"{_key(node)}/range"))
    return State(constants, ranges, fixed, follows)


def _key(node: Node) -> str:
    spec: QuantSpec = node.attrs["spec"]
    return spec.group or node.name


def _plain(name: str) -> str:
    return name.replace(":", "_")


def _factors(graph: Graph, value: str) -> tuple[Node, ...]:
    """The quantizers whose scales make up that of `value`."""
    node = graph.producer(value)
    if node.op in QUANTIZERS:
        return (node,)
    parts = node.inputs[:2] if node.op in (*COMPUTE, "mul") else node.inputs[:1]
    return tuple(factor for part in parts for factor in _factors(graph, part))
