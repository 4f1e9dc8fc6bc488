"""A training graph whose quantizers are of other kinds, with separate ones for weights and
activations.

Biases, the wide stage inside a layer and constants of pools stay float, as in the papers, whose
biases and sums have 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.quantizers.single import Quantizer
from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, Role
from qgraph.quant.topology import QUANTIZERS
from qgraph.train.forward import Forward, Override, Piece
from qgraph.train.kind import Replacements
from qgraph.train.norms import Update
from qgraph.train.state import scale_of

Tensor = Any
Make = Callable[..., Quantizer]
ACTIVATIONS = (Role.INPUT, Role.ACTIVATION)


@dataclass(frozen=True)
class QuantizerPair:
    """The quantizers of weights and of activations."""

    weights: Make
    activations: Make

    def of(self, role: Role) -> Make | None:
        """The quantizer of tensors with this role; None keeps them in float."""
        if role == Role.WEIGHT:
            return self.weights
        return self.activations if role in ACTIVATIONS else None


class ComparedQuantizers:
    """Quantizers whose result cannot be expressed in integers (`qgraph.train.kind.Quantizers`).

    Tensors of one scale group share a quantizer, as in the calibrated `graph`. sample: inputs from
    which quantizers start.
    """

    wide: frozenset[str] = frozenset()
    frozen_at_once = 0

    def __init__(
        self, graph: Graph, name: str, both: QuantizerPair, sample: Mapping[str, Array]
    ) -> None:
        import tensorflow as tf

        self.graph, self.name = graph, name
        values = _values(graph, sample)
        nodes: dict[str, list[Node]] = {}
        for node in graph.topological():
            if node.name in values and both.of(spec_of(node).role) is not None:
                nodes.setdefault(scale_of(node), []).append(node)
        self.by_scale: dict[str, Quantizer] = {}
        for scale, members in nodes.items():
            spec = spec_of(members[0])
            make = both.of(spec.role)
            assert make is not None
            x = np.concatenate([values[node.name] for node in members])
            self.by_scale[scale] = make(spec, x, _is_depthwise(graph, members[0]))
        self.quantized = {node.name for members in nodes.values() for node in members}
        firsts = [quantizer.first for quantizer in self.by_scale.values()]
        joined = np.concatenate(firsts) if firsts else np.zeros(0)
        self.ranges = tf.Variable(joined.astype(np.float32), name="ranges")

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each trained number."""
        return tuple(f"{s}[{i}]" for s, q in self.by_scale.items() for i in range(len(q.first)))

    def variables(self) -> dict[str, Tensor]:
        """All trained variables and moving averages."""
        held = {
            f"average/{scale}/{i}": variable
            for scale, quantizer in self.by_scale.items()
            for i, variable in enumerate(quantizer.variables)
        }
        return {"ranges": self.ranges, **held}

    def penalty(self) -> Tensor:
        """The penalties of all quantizers."""
        import tensorflow as tf

        trained = self._trained()
        terms = [q.penalty(trained[scale]) for scale, q in self.by_scale.items()]
        return sum(terms, tf.constant(0.0))

    def finalize(self, graph: Graph) -> None:
        """Refuse, because real scales have no exponents. Without quantizers there is nothing to
        do.
        """
        if self.by_scale:
            raise UnsupportedError(
                f"quantizers `{self.name}` do not end in integers",
                node=next(iter(self.by_scale)),
                hint="they are for comparison; train with TQT",
            )

    def replacements(
        self, pieces: Mapping[str, Piece], wanted: Collection[str] | None
    ) -> Replacements:
        """Each quantizer with its current values. ReLU6 clips at 6."""
        import tensorflow as tf

        trained, updates = self._trained(), list[Update]()

        def run(node: Node, x: Tensor) -> Tensor:
            x = tf.cast(x, tf.float32)
            if node.name not in self.quantized:
                return x
            quantizer = self.by_scale[scale_of(node)]
            updates.extend(quantizer.updates(x))
            return quantizer.run(x, trained[scale_of(node)])

        overrides: dict[str, Override] = {"quantize": run, "relu6": lambda _, x: tf.nn.relu6(x)}
        return Replacements(overrides, updates=updates)

    def _trained(self) -> dict[str, Tensor]:
        import tensorflow as tf

        sizes = [len(quantizer.first) for quantizer in self.by_scale.values()]
        return dict(zip(self.by_scale, tf.split(self.ranges, sizes), strict=True))


def _values(graph: Graph, sample: Mapping[str, Array]) -> dict[str, Array]:
    """The input of each quantizer in a run without quantization."""
    import tensorflow as tf

    for node in graph.topological():
        if node.op in QUANTIZERS and node.op != "quantize":
            what = f"`{node.op}` has no other kinds of quantizers"
            raise UnsupportedError(what, node=node.name, hint="compare on other networks")
    found: dict[str, Array] = {}

    def keep(node: Node, x: Tensor) -> Tensor:
        found[node.name] = np.asarray(x, np.float32)
        return x

    overrides: dict[str, Override] = {"quantize": keep, "relu6": lambda _, x: tf.nn.relu6(x)}
    Forward(graph, (*QUANTIZERS, "relu6"))(
        {name: tf.constant(array) for name, array in sample.items()}, overrides=overrides
    )
    return found


def _is_depthwise(graph: Graph, node: Node) -> bool:
    return any(user.op == "depthwise_conv2d" for user in graph.users(node.name))
