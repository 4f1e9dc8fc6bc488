"""Variables of a training graph: its constants and the ranges of its scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.exact.sums import FLOAT32_EXACT
from qgraph.foreign import Tensor, Variable
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.reading import marks_of, spec_of, value_of
from qgraph.ir.types import Overflow, Role
from qgraph.quant.topology import QUANTIZERS

TRAINED = ("weight", "bias", "scale")
# The middle of the ranges that round up to the calibrated power of two.
START = -0.5


@dataclass(frozen=True)
class TrainingState:
    """Variables of a training graph.

    constants  weights, biases and multipliers, by const node
    names      scale groups, and quantizers without a group, in the order of `ranges`
    ranges     one float32 variable [scales]: a range r is the scale `2^ceil(r)`; the threshold of a
               quantizer with b bits and sign s has `log2_t = r + b - s`
    fixed      exponents that are not trained, by quantizer
    follows    by quantizer of a bias at its accumulator's scale: the quantizers whose scales
               multiply to it
    """

    constants: Mapping[str, Variable]
    names: tuple[str, ...]
    ranges: Variable
    fixed: Mapping[str, int]
    follows: Mapping[str, tuple[Node, ...]]

    def unstacked(self) -> dict[str, Tensor]:
        """Each range by name, a float32 scalar tensor."""
        import tensorflow as tf

        return dict(zip(self.names, tf.unstack(self.ranges), strict=True)) if self.names else {}

    def log2_t(self, node: Node, ranges: Mapping[str, Tensor]) -> Tensor:
        """The logarithm of the threshold of a quantizer, a float32 scalar; `ranges` by name."""
        spec = spec_of(node)
        return self._range(node, ranges) + float(spec.bits - int(spec.signed))

    def exponent(self, node: Node, ranges: Mapping[str, Tensor]) -> int:
        """The current exponent of a quantizer."""
        return -int(np.ceil(np.asarray(self._range(node, ranges))))

    def _range(self, node: Node, ranges: Mapping[str, Tensor]) -> Tensor:
        import tensorflow as tf

        if node.name in self.fixed:
            return tf.constant(-float(self.fixed[node.name]))
        if node.name in self.follows:
            parts = [tf.math.ceil(self._range(part, ranges)) for part in self.follows[node.name]]
            return tf.stop_gradient(tf.add_n(parts))
        return ranges[scale_of(node)]


def state_of(graph: Graph) -> TrainingState:
    """Variables for a calibrated graph, or a float one, which has no ranges.

    Raises UnsupportedError for what cannot be trained.
    """
    import tensorflow as tf

    ranges: dict[str, float] = {}
    fixed: dict[str, int] = {}
    follows: dict[str, tuple[Node, ...]] = {}
    for node in (n for n in graph.topological() if n.op in QUANTIZERS):
        spec = spec_of(node)
        if not isinstance(spec.exponent, int) or spec.overflow == Overflow.WRAP:
            what = "values that wrap" if spec.overflow == Overflow.WRAP else "scales per channel"
            raise UnsupportedError(f"{what} cannot be trained yet", node=node.name)
        if max(-spec.lo, spec.hi) > FLOAT32_EXACT and not spec.role.of_constant:
            raise UnsupportedError(
                f"codes of {spec.bits} bits cannot be trained: training holds values in float32",
                node=node.name,
                hint="a profile with `bits.internal` of at most 25",
            )
        if node.op == "standardize" or (spec.group is None and spec.role == Role.CONSTANT):
            fixed[node.name] = spec.exponent
        elif spec.group is None and spec.role == Role.BIAS:
            (user,) = graph.users(node.name)
            follows[node.name] = scale_factors(graph, user.inputs[0])
        else:
            ranges.setdefault(scale_of(node), -spec.exponent + START)
    constants = {
        name: tf.Variable(value_of(graph.nodes[name]), name=name.replace(":", "_"))
        for name in trained_constants(graph)
    }
    variable = tf.Variable(
        np.array(list(ranges.values()), np.float32),
        name="ranges",
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,  # all replicas assign the same
    )
    return TrainingState(constants, tuple(ranges), variable, fixed, follows)


def trained_constants(graph: Graph) -> list[str]:
    """Const nodes that training changes: weights, biases, multipliers of batch norms."""
    found: dict[str, None] = {}
    for node in graph.topological():
        if node.op in QUANTIZERS:
            learns, value = spec_of(node).role in TRAINED, node.inputs[0]
        else:  # not quantized: float layers
            layer = node.op in (*COMPUTE, "bias_add") or marks_of(node).batch_norm
            learns = layer and not marks_of(node).pool
            value = node.inputs[1] if learns else ""
        if learns and graph.constant(value) is not None:
            found[value] = None
    return list(found)


def scale_of(node: Node) -> str:
    """The name of a quantizer's scale: its group, or the quantizer itself."""
    spec = spec_of(node)
    return spec.group or node.name


def scale_factors(graph: Graph, value: str) -> tuple[Node, ...]:
    """The quantizers whose scales multiply to the scale of `value`."""
    node = graph.producer(value)
    if node.op in QUANTIZERS:
        return (node,)
    parts = node.inputs[:2] if node.op in (*COMPUTE, "mul") else node.inputs[:1]
    return tuple(factor for part in parts for factor in scale_factors(graph, part))
