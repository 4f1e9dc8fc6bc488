"""A calibrated graph whose weights, biases, batch norms and thresholds are variables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from qgraph.errors import TrainingError
from qgraph.exact.bounds import bounds
from qgraph.exact.sums import FLOAT32_EXACT
from qgraph.foreign import Tensor, TFModule, Variable
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.structure import TableAttrs
from qgraph.ir.reading import spec_if_any, spec_of
from qgraph.ir.types import Array, Rounding
from qgraph.quant.topology import QUANTIZERS, ValueExponents, sources, value_exponent
from qgraph.train.compact import coded_inputs, keeping_codes
from qgraph.train.epilogue import Epilogue, epilogue_op, epilogues
from qgraph.train.folded import Norm
from qgraph.train.forward import Chain, Forward, Override, Piece, piece_of
from qgraph.train.norms import MOMENTUM, BatchNorms, Update
from qgraph.train.quantizer import Spec, evened, quantize
from qgraph.train.standardize import standardize
from qgraph.train.state import TRAINED, TrainingState, scale_factors, state_of


@dataclass(frozen=True)
class ScaledOps:
    """Ops with several implementations.

    quantize: like `qgraph.train.quantizer.quantize`. epilogue: returns the op for an `Epilogue`, or
    None to run its nodes separately.
    """

    quantize: Callable[[Tensor, Tensor, int, bool, str], Tensor] = quantize
    epilogue: Callable[[], TFModule | None] = epilogue_op


class TrainingGraph:
    """A trainable quantized graph with the variables `kernels`, `gammas` and `thresholds`.

    graph: a calibrated graph, or a float graph, which has no thresholds. norms: batch norms that
    were folded into it; they are active until they are frozen. momentum: of their running
    statistics. ops: None selects the form for the device.
    """

    def __init__(
        self,
        graph: Graph,
        norms: Sequence[Norm] = (),
        *,
        momentum: float = MOMENTUM,
        ops: ScaledOps | None = None,
    ) -> None:
        self.graph, self.momentum, self.ops = graph, momentum, ops or ScaledOps()
        self.state: TrainingState = state_of(graph)
        self.norms = BatchNorms(graph, norms)
        self.functions = {
            node.name: piece_of(
                graph,
                Node(node.name, table.function, node.inputs, table.given_to_function),
                "float64",
            )
            for node in graph.topological()
            if isinstance(table := node.attributes, TableAttrs)
        }
        self._coded = _coded(graph)
        self._forward = Forward(graph, (*QUANTIZERS, "relu6"))
        self.epilogues = epilogues(graph)
        self.coded_inputs = coded_inputs(graph)
        self.wide = _wide(at_their_widest(graph))

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run as in inference, inside a `tf.function`: tensors by input name to outputs by name.

        Every quantized number equals that of inference: layers whose sums may not be exact in
        float32 for some weights are computed in float64 (docs/numerics.md, 4).
        """
        import tensorflow as tf

        def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            wanted = self.graph.outputs.values()
            return self.outputs(self.values(inputs, wide=self.wide, wanted=wanted)[0])

        # AutoGraph is off: it would rewrite each line of the function.
        outputs: dict[str, Tensor] = tf.autograph.experimental.do_not_convert(run)(inputs)
        return outputs

    def outputs(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Outputs by public name out of all `values`."""
        import tensorflow as tf

        types, outputs = self.graph.types, self.graph.outputs
        return {name: tf.cast(values[v], types[v].dtype) for name, v in outputs.items()}

    def values(
        self,
        inputs: Mapping[str, Tensor],
        *,
        batch_statistics: bool = False,
        wide: Collection[str] = (),
        wanted: Collection[str] | None = None,
    ) -> tuple[dict[str, Tensor], list[Update]]:
        """Every value by name, and updates of running statistics.

        batch_statistics: whether batch norms use the statistics of this batch; otherwise batch
        norms are frozen and the updates are empty. wide: nodes to compute in float64. wanted: names
        of the values to compute; others may be missing from the result. None computes all.
        """
        updates: list[Update] = []

        def normalize(node: Node, piece: Piece, inputs: Sequence[Tensor]) -> Tensor:
            layer = self.norms.by_layer[node.name]
            weights = self.state.constants[layer.weights]
            y, changed = layer.run(weights, piece, inputs, self.momentum)
            updates.extend(changed)
            return y

        around = dict.fromkeys(self.norms.by_layer, normalize) if batch_statistics else {}
        ranges = self.state.unstacked()
        overrides: dict[str, Override] = {
            "quantize": partial(self._requantize, ranges),
            "lookup": partial(self._lookup, ranges),
            "standardize": partial(self._standardize, ranges),
            "relu6": partial(self._relu6, ranges),
        }
        chains = [] if wanted is None else self._chains(ranges, frozenset(wanted))
        pieces = {
            name: keeping_codes(
                self._forward.pieces[name], spec_of(node), self.state.log2_t(node, ranges)
            )
            for name, node in self.coded_inputs.items()
        }
        constants = self.constants()
        values = self._forward(inputs, constants, overrides, around, wide, chains, pieces)
        return values, updates

    def wide_now(self) -> frozenset[str]:
        """The nodes whose sums may not be exact in float32 with the current weights."""
        return _wide(self.finalized())

    def constants(self) -> dict[str, Tensor]:
        """Values of the const nodes, batch norms folded."""
        return self.norms.folded(self.state.constants)

    @property
    def kernels(self) -> list[Variable]:
        """Weights, biases and multipliers."""
        return list(self.state.constants.values())

    @property
    def gammas(self) -> list[Variable]:
        """Scales of batch norms."""
        return self.norms.gammas

    @property
    def thresholds(self) -> list[Variable]:
        """The ranges of all scales (`TrainingState.ranges`); empty for a float graph."""
        return [self.state.ranges] if self.state.names else []

    def named_variables(self) -> dict[str, Variable]:
        """All variables, by names that do not change between versions."""
        found = {f"constant/{name}": v for name, v in self.state.constants.items()}
        found.update(self.norms.named_variables())
        return {**found, "ranges": self.state.ranges}

    def arrays(self) -> dict[str, Array]:
        """Values of `named_variables`. Raises TrainingError for NaN or infinity."""
        found = {name: np.array(v.numpy()) for name, v in self.named_variables().items()}
        for name, array in found.items():
            if not np.isfinite(array).all():
                hint = "go back to a checkpoint; smaller learning rates may help"
                raise TrainingError("training led to NaN or infinity", node=name, hint=hint)
        return found

    def finalized(self, graph: Graph | None = None) -> Graph:
        """A copy of `graph` (by default the own one) with the current constants and exponents.

        Raises TrainingError if a variable is not finite.
        """
        self.arrays()
        made = (graph or self.graph).copy()
        for name, tensor in self.constants().items():
            made.set_attrs(name, value=np.asarray(tensor.numpy()))
        ranges = self.state.unstacked()
        for node in list(made.topological()):
            if node.op in QUANTIZERS:
                spec = spec_of(node)
                exponent = self.state.exponent(node, ranges)
                made.set_attrs(node.name, spec=spec.with_exponent(exponent))
        return made

    # -- ops that depend on a scale -----------------------------------------------------------

    def _requantize(self, ranges: Mapping[str, Tensor], node: Node, x: Tensor) -> Tensor:
        spec = spec_of(node)
        if spec.rounding == Rounding.DOUBLE and node.inputs[0] in self._coded:
            factors = scale_factors(self.graph, node.inputs[0])
            exponent = sum(self._exponent(ranges, factor) for factor in factors)
            x = evened(x, exponent, exponent > self._exponent(ranges, node))
        return self._quantize(ranges, node, x)

    def _exponent(self, ranges: Mapping[str, Tensor], node: Node) -> Tensor:
        import tensorflow as tf

        spec = spec_of(node)
        log2_t = tf.stop_gradient(self.state.log2_t(node, ranges))
        return float(spec.bits - spec.signed) - tf.math.ceil(log2_t)

    def _quantize(self, ranges: Mapping[str, Tensor], node: Node, x: Tensor) -> Tensor:
        spec = spec_of(node)
        import tensorflow as tf

        log2_t = self.state.log2_t(node, ranges)
        narrow = tf.cast(x, tf.float32)
        y = self.ops.quantize(narrow, log2_t, spec.bits, spec.signed, spec.rounding)
        if x.dtype != tf.float64:
            return y
        # float32 cannot represent the rounded result, but its gradient is accurate enough.
        exact = Spec(spec.bits, spec.signed, spec.rounding, 0).forward(x, log2_t)
        return y + tf.stop_gradient(tf.cast(exact, tf.float32) - y)

    def _lookup(self, ranges: Mapping[str, Tensor], node: Node, x: Tensor) -> Tensor:
        """The function, computed in float64 like the entries of its table, then quantized."""
        import tensorflow as tf

        (wide,) = self.functions[node.name](tf.cast(x, tf.float64))
        return self._quantize(ranges, node, tf.cast(wide, tf.float32))

    def _standardize(self, ranges: Mapping[str, Tensor], node: Node, x: Tensor) -> Tensor:
        import tensorflow as tf

        source = self.graph.nodes[sources(self.graph, node.inputs[0])[0]]
        spec = spec_of(source)
        log2_t = self.state.log2_t(source, ranges)
        return standardize(node, x, spec.bits - spec.signed - tf.math.ceil(log2_t))

    def _relu6(self, ranges: Mapping[str, Tensor], node: Node, x: Tensor) -> Tensor:
        import tensorflow as tf

        members = sources(self.graph, node.inputs[0])
        if not members:
            return tf.nn.relu6(x)
        return _clipped(x, self._six(ranges, self.graph.nodes[members[0]]))

    def _six(self, ranges: Mapping[str, Tensor], source: Node) -> Tensor:
        """The upper limit of ReLU6 on the grid of `source`: the point nearest to 6."""
        import tensorflow as tf

        spec = spec_of(source)
        log2_t = tf.stop_gradient(self.state.log2_t(source, ranges))
        scale = tf.pow(2.0, tf.math.ceil(log2_t) - float(spec.bits - spec.signed))
        return tf.round(6.0 / scale) * scale

    def _chains(self, ranges: Mapping[str, Tensor], wanted: frozenset[str]) -> list[Chain]:
        """The epilogues that can run as one op, because none of their inner values is wanted."""
        op = self.ops.epilogue()
        if op is None:
            return []

        def run(found: Epilogue, values: Mapping[str, Tensor]) -> Tensor:
            inner, outer = (self.state.log2_t(node, ranges) for node in (found.inner, found.outer))
            six = self._six(ranges, found.inner)
            return op(*found.inputs(values, six), inner, outer, **found.attributes)

        return [
            Chain(found.x, found.nodes, partial(run, found))
            for found in self.epilogues
            if wanted.isdisjoint(found.nodes[:-1])
        ]


def at_their_widest(graph: Graph) -> Graph:
    """A copy of `graph` with trained constants at the limit of their range, for any training."""
    made = graph.copy()
    for node in graph.topological():
        value = graph.constant(node.inputs[0]) if node.op in QUANTIZERS else None
        spec = spec_if_any(node)
        if value is not None and spec is not None and spec.role in TRAINED:
            assert isinstance(spec.exponent, int)
            limit = np.ldexp(float(spec.lo if spec.signed else spec.hi), -spec.exponent)
            made.set_attrs(node.inputs[0], value=np.full_like(value, limit))
    return made


def _coded(graph: Graph) -> frozenset[str]:
    """The values that are on a grid of codes."""
    exponents: ValueExponents = {}
    for node in graph.topological():
        exponents[node.name] = value_exponent(node, exponents)
    return frozenset(name for name, exponent in exponents.items() if exponent is not None)


def _wide(graph: Graph) -> frozenset[str]:
    """The nodes of a calibrated graph whose sums may not be exact in float32."""
    if not any(node.op in QUANTIZERS for node in graph.topological()):
        return frozenset()
    found = bounds(graph)
    names = (node.name for node in graph.topological() if node.op not in QUANTIZERS)
    return frozenset(n for n in names if n in found and found[n].magnitude > FLOAT32_EXACT)


def _clipped(x: Tensor, high: Tensor) -> Tensor:
    """`clip(x, 0, high)` for x on a grid, where `high` is the point of the grid nearest to 6.

    The gradient is that of ReLU6, because that of `minimum` would take six passes over x. Both are
    equal: `high` is 6, or it is 8 or 0 on a grid without points between it and 6.
    """
    import tensorflow as tf

    def run(x: Tensor) -> Tensor:
        y = tf.raw_ops.ClipByValue(t=x, clip_value_min=0.0, clip_value_max=high)
        return y, lambda upstream: tf.raw_ops.Relu6Grad(gradients=upstream, features=y)

    return tf.custom_gradient(run)(x)
