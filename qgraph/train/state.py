"""Variables of a training graph: its constants and the ranges of its scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.exact.sums import FLOAT32_EXACT
from qgraph.foreign import Tensor, Variable
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.reading import marks_of, spec_of, value_of
from qgraph.ir.types import Exponent, QuantSpec, Role
from qgraph.numerics import frozen_exponent
from qgraph.quant.topology import QUANTIZERS, multiplies

TRAINED = ("weight", "bias", "scale")
OF_ONE_SCALE = ("standardize", "integer_softmax")  # ops whose results have a fixed scale
# The middle of the ranges that round up to the calibrated power of two.
START = -0.5


@dataclass(frozen=True)
class Scales:
    """Scales of a training graph, all in one variable. A range r is the scale `2^ceil(r)`.

    counts     scale groups, and quantizers without a group, in the order of `ranges`: the number of
               channels with a scale of their own, or None for one scale of the whole tensor
    ranges     one float32 variable [scales]; the threshold of a quantizer with b bits and sign s
               has `log2_t = r + b - s`
    fixed      exponents that are not trained, by quantizer
    follows    by quantizer of a bias at its accumulator's scale: the quantizers whose scales
               multiply to it
    """

    counts: Mapping[str, int | None]
    ranges: Variable
    fixed: Mapping[str, Exponent]
    follows: Mapping[str, tuple[Node, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each number of `ranges`: of the scale, and the index of its channel."""
        return tuple(
            name if count is None else f"{name}[{i}]"
            for name, count in self.counts.items()
            for i in range(count or 1)
        )

    def unstacked(self) -> dict[str, Tensor]:
        """The ranges by name, float32: a scalar, or [channels]."""
        import tensorflow as tf

        counts = self.counts.values()
        if not any(counts):  # one scale for each: fewer ops
            return dict(zip(self.counts, tf.unstack(self.ranges), strict=True)) if counts else {}
        parts = tf.split(self.ranges, [count or 1 for count in counts])
        return {
            name: part if count else tf.reshape(part, [])
            for (name, count), part in zip(self.counts.items(), parts, strict=True)
        }

    def log2_t(self, node: Node, ranges: Mapping[str, Tensor]) -> Tensor:
        """The logarithm of the threshold of a quantizer, float32: a scalar, or [channels].

        ranges: by name.
        """
        spec = spec_of(node)
        return self._range(node, ranges) + float(spec.bits - int(spec.signed))

    def exponent(self, node: Node, ranges: Mapping[str, Tensor]) -> Exponent:
        """The current exponent of a quantizer."""
        found = -np.ceil(np.asarray(self._range(node, ranges)))
        return frozen_exponent(found.astype(np.int64))

    def _range(self, node: Node, ranges: Mapping[str, Tensor]) -> Tensor:
        import tensorflow as tf

        if node.name in self.fixed:
            return tf.constant(-np.asarray(self.fixed[node.name], np.float32))
        if node.name in self.follows:
            parts = [tf.math.ceil(self._range(part, ranges)) for part in self.follows[node.name]]
            return tf.stop_gradient(reduce(add, parts))
        return ranges[scale_of(node)]


def scales_of(graph: Graph) -> Scales:
    """Scales of a calibrated graph; none of a float graph.

    Raises UnsupportedError for what cannot be trained.
    """
    import tensorflow as tf

    starts: dict[str, Exponent] = {}
    fixed: dict[str, Exponent] = {}
    follows: dict[str, tuple[Node, ...]] = {}
    for node in (n for n in graph.topological() if n.op in QUANTIZERS):
        spec = spec_of(node)
        check_trainable(node.name, spec)
        assert spec.exponent is not None, node.name
        constant = spec.group is None and spec.role == Role.CONSTANT
        if node.op in OF_ONE_SCALE or constant or spec.role == Role.INDEX:
            fixed[node.name] = spec.exponent
        elif spec.group is None and spec.role == Role.BIAS:
            (user,) = graph.users(node.name)
            follows[node.name] = scale_factors(graph, user.inputs[0])
        else:
            starts.setdefault(scale_of(node), spec.exponent)
    values = [START - np.ravel(exponent) for exponent in starts.values()]
    variable = tf.Variable(
        np.concatenate(values).astype(np.float32) if values else np.zeros(0, np.float32),
        name="ranges",
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,  # all replicas assign the same
    )
    counts = {name: None if isinstance(e, int) else len(e) for name, e in starts.items()}
    return Scales(counts, variable, fixed, follows)


def check_trainable(name: str, spec: QuantSpec) -> None:
    """Raise UnsupportedError if the quantizer `name` cannot be trained."""
    if spec.role == Role.ACCUMULATOR:
        raise UnsupportedError(
            "accumulators that wrap cannot be trained",
            node=name,
            hint="a profile with `accumulator.overflow: error`, or more `accumulator.bits`",
        )
    if max(-spec.lo, spec.hi) > FLOAT32_EXACT and not spec.role.of_constant:
        raise UnsupportedError(
            f"codes of {spec.bits} bits cannot be trained: training holds values in float32",
            node=name,
            hint="a profile with `bits.internal` of at most 25",
        )


def constants_of(graph: Graph) -> dict[str, Variable]:
    """A variable for each const node that training changes."""
    import tensorflow as tf

    return {
        name: tf.Variable(value_of(graph.nodes[name]), name=name.replace(":", "_"))
        for name in trained_constants(graph)
    }


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
    parts = node.inputs[:2] if multiplies(node) else node.inputs[:1]
    return tuple(factor for part in parts for factor in scale_factors(graph, part))
