"""The quantizers of TQT in a training graph: one power of two per tensor or channel.

A training graph with them computes what inference computes, number by number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np

from qgraph.exact.bounds import bounds
from qgraph.exact.sums import FLOAT32_EXACT
from qgraph.foreign import KerasModel, Tensor, TFModule, Variable
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.structure import TableAttrs
from qgraph.ir.reading import spec_if_any, spec_of
from qgraph.ir.types import Overflow, Rounding
from qgraph.numerics import aligned
from qgraph.quant.topology import QUANTIZERS, ValueExponents, sources, value_exponent
from qgraph.train.compact import (
    InputCodes,
    code_ops,
    coded_inputs,
    keeping_codes,
    pool_keeping_codes,
    separate_windows,
)
from qgraph.train.epilogue import Epilogue, epilogue_op, epilogues
from qgraph.train.forward import Chain, Override, Piece, piece_of
from qgraph.train.freezing import Freezing
from qgraph.train.kind import QuantizerKind, RateUnits, Replacements
from qgraph.train.normed_epilogue import PendingNorm, epilogue_of_product, norm_ops, normed_epilogue
from qgraph.train.options import Options
from qgraph.train.quantizer import Spec, quantize, with_even_codes
from qgraph.train.softmax import integer_softmax
from qgraph.train.standardize import standardize
from qgraph.train.state import TRAINED, Scales, scale_factors, scales_of


@dataclass(frozen=True)
class ScaledOps:
    """Ops with several implementations.

    quantize: like `qgraph.train.quantizer.quantize`. epilogue: returns the op for an `Epilogue`, or
    None to run its nodes separately. normed: returns the ops for one behind a batch norm, or None.
    codes: returns the ops that pack codes into bytes, or None for TensorFlow's own.
    """

    quantize: Callable[[Tensor, Tensor, int, bool, str], Tensor] = quantize
    epilogue: Callable[[], TFModule | None] = epilogue_op
    normed: Callable[[], TFModule | None] = norm_ops
    codes: Callable[[], TFModule | None] = code_ops

    @classmethod
    def stock(cls, quantize: Callable[[Tensor, Tensor, int, bool, str], Tensor]) -> ScaledOps:
        """TensorFlow's own ops, and this function for quantizers."""
        return cls(quantize, *[lambda: None] * (len(fields(cls)) - 1))


class TqtQuantizers:
    """Quantizers whose scales are powers of two; their thresholds are trained.

    graph: a calibrated graph, or a float graph, which has no thresholds. ops: None selects the form
    for the device.
    """

    def __init__(self, graph: Graph, ops: ScaledOps | None = None) -> None:
        self.graph, self.ops = graph, ops or ScaledOps()
        self.scales: Scales = scales_of(graph)
        self.ranges = self.scales.ranges
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
        self.epilogues = epilogues(graph)
        self.coded_inputs = coded_inputs(graph)
        self.wide = inexact_in_float32(at_their_widest(graph))

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each range."""
        return self.scales.names

    @property
    def frozen_at_once(self) -> int:
        """The mean number of ranges in a quantizer, rounded up: they are frozen together."""
        return -(-len(self.names) // max(len(self.scales.counts), 1))

    def variables(self) -> dict[str, Variable]:
        """The ranges of all scales."""
        return {"ranges": self.ranges}

    def penalty(self) -> Tensor:
        """No term of the loss: the gradient of a threshold needs none."""
        return 0.0

    def finalize(self, graph: Graph) -> None:
        """Give each quantizer of `graph` its current exponent."""
        ranges = self.scales.unstacked()
        for node in list(graph.topological()):
            if node.op in QUANTIZERS:
                exponent = self.scales.exponent(node, ranges)
                graph.set_attrs(node.name, spec=spec_of(node).with_exponent(exponent))

    def replacements(
        self, pieces: Mapping[str, Piece], wanted: Collection[str] | None
    ) -> Replacements:
        """The functions for the current ranges."""
        ranges = self.scales.unstacked()
        overrides: dict[str, Override] = {
            "quantize": partial(self._requantize, ranges),
            "lookup": partial(self._lookup, ranges),
            "standardize": partial(self._on_codes, standardize, ranges),
            "integer_softmax": partial(self._on_codes, integer_softmax, ranges),
            "relu6": partial(self._relu6, ranges),
        }
        codes = self._codes(ranges)
        keeping = {name: self._keeping(pieces[name], name, kept) for name, kept in codes.items()}
        chains = [] if wanted is None else self._chains(ranges, frozenset(wanted))
        return Replacements(overrides, chains, keeping, codes)

    def _codes(self, ranges: Mapping[str, Tensor]) -> dict[str, InputCodes]:
        """The codes of inputs that layers keep, by layer."""
        import tensorflow as tf

        ops = self.ops.codes()
        return {
            name: InputCodes(spec_of(node), tf.stop_gradient(self.scales.log2_t(node, ranges)), ops)
            for name, node in self.coded_inputs.items()
        }

    def _keeping(self, piece: Piece, name: str, codes: InputCodes) -> Piece:
        windows = separate_windows(self.graph, self.graph.nodes[name]) if codes.ops else None
        if windows is None:
            return keeping_codes(piece, codes)
        return pool_keeping_codes(piece, codes, windows)

    # -- ops that depend on a scale -----------------------------------------------------------

    def _requantize(self, ranges: Mapping[str, Tensor], node: Node, x: Tensor) -> Tensor:
        spec = spec_of(node)
        if spec.rounding == Rounding.DOUBLE and node.inputs[0] in self._coded:
            factors = scale_factors(self.graph, node.inputs[0])
            exponent = sum(self._exponent(ranges, factor) for factor in factors)
            x = with_even_codes(x, exponent, exponent > self._exponent(ranges, node))
        return self._quantize(ranges, node, x)

    def _exponent(self, ranges: Mapping[str, Tensor], node: Node) -> Tensor:
        import tensorflow as tf

        spec = spec_of(node)
        log2_t = tf.stop_gradient(self.scales.log2_t(node, ranges))
        return float(spec.bits - spec.signed) - tf.math.ceil(log2_t)

    def _quantize(self, ranges: Mapping[str, Tensor], node: Node, x: Tensor) -> Tensor:
        spec = spec_of(node)
        import tensorflow as tf

        log2_t = _along_channels(self.scales.log2_t(node, ranges), x)
        narrow = tf.cast(x, tf.float32)
        y = self.ops.quantize(narrow, log2_t, spec.bits, spec.signed, spec.rounding)
        wraps = spec.overflow == Overflow.WRAP
        if x.dtype != tf.float64 and not wraps:
            return y
        # float32 cannot represent the rounded result, but its gradient is accurate enough. The
        # gradient of what wraps is that of what saturates: it drives values back into the range.
        exact = Spec(spec.bits, spec.signed, spec.rounding, 0, wraps)
        value = exact.forward(tf.cast(x, tf.float64), tf.stop_gradient(log2_t))
        return y + tf.stop_gradient(tf.cast(value, tf.float32) - y)

    def _lookup(self, ranges: Mapping[str, Tensor], node: Node, x: Tensor) -> Tensor:
        """The function, computed in float64 like the entries of its table, then quantized."""
        import tensorflow as tf

        # Entries are rounded once: 16 bits of a number that was rounded to float32 may be others.
        (wide,) = self.functions[node.name](tf.cast(x, tf.float64))
        return self._quantize(ranges, node, wide)

    def _on_codes(
        self,
        function: Callable[[Node, Tensor, Tensor], Tensor],
        ranges: Mapping[str, Tensor],
        node: Node,
        x: Tensor,
    ) -> Tensor:
        """A function that depends on the exponent of x."""
        import tensorflow as tf

        source = self.graph.nodes[sources(self.graph, node.inputs[0])[0]]
        spec = spec_of(source)
        log2_t = self.scales.log2_t(source, ranges)
        return function(node, x, spec.bits - spec.signed - tf.math.ceil(log2_t))

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
        log2_t = tf.stop_gradient(self.scales.log2_t(source, ranges))
        scale = tf.pow(2.0, tf.math.ceil(log2_t) - float(spec.bits - spec.signed))
        return tf.round(6.0 / scale) * scale

    def _chains(self, ranges: Mapping[str, Tensor], wanted: frozenset[str]) -> list[Chain]:
        """The epilogues that can run as one op, because none of their inner values is wanted."""
        import tensorflow as tf

        op = self.ops.epilogue()
        if op is None:
            return []
        normed_ops = self.ops.normed()

        def inputs(found: Epilogue, values: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
            inner, outer = (self.scales.log2_t(node, ranges) for node in (found.inner, found.outer))
            return (*found.inputs(values, self._six(ranges, found.inner)), inner, outer)

        def factor(found: Epilogue, values: Mapping[str, Tensor]) -> Tensor | None:
            return tf.reshape(values[found.product.inputs[1]], [-1]) if found.product else None

        def run(found: Epilogue, values: Mapping[str, Tensor]) -> Tensor:
            given, by = inputs(found, values), factor(found, values)
            if by is None:
                return op(*given, **found.attributes)
            return epilogue_of_product(normed_ops, by, given, found.attributes)

        def normed(found: Epilogue, norm: PendingNorm, values: Mapping[str, Tensor]) -> Tensor:
            given, by = inputs(found, values), factor(found, values)
            return normed_epilogue(norm, normed_ops, given, found.attributes, by)

        def chain(found: Epilogue) -> Chain:
            return Chain(
                found.x,
                found.nodes,
                partial(run, found),
                None if normed_ops is None else partial(normed, found),
                found.layer,
                chain(found.without_product()) if found.product else None,
            )

        usable = (e.without_product() if normed_ops is None else e for e in self.epilogues)
        return [chain(found) for found in usable if wanted.isdisjoint(found.nodes[:-1])]


def _adam(options: Options, freezing: Freezing, units: RateUnits) -> KerasModel:
    from qgraph.train.optimizer import adam_for

    return adam_for(options, freezing, units)


TQT = QuantizerKind(
    name="tqt",
    title="TQT",
    scale="a power of two",
    gradient="of log2 t through rounding (7)",
    start="weights by three deviations, activations by KL-J",
    source="Jain et al., 2019, equations 4 to 8",
    integers=True,
    quantizers=TqtQuantizers,
    optimizer=_adam,
)


def tqt_with(ops: ScaledOps) -> QuantizerKind:
    """TQT with other implementations of its ops."""
    return replace(TQT, quantizers=partial(TqtQuantizers, ops=ops))


def at_their_widest(graph: Graph) -> Graph:
    """A copy of `graph` with trained constants at the limit of their range, for any training."""
    made = graph.copy()
    for node in graph.topological():
        value = graph.constant(node.inputs[0]) if node.op in QUANTIZERS else None
        spec = spec_if_any(node)
        if value is not None and spec is not None and spec.role in TRAINED:
            limit = float(spec.lo if spec.signed else spec.hi)
            limits = np.ldexp(limit, -aligned(spec.exponent, value.shape))
            made.set_attrs(node.inputs[0], value=np.full(value.shape, limits, value.dtype))
    return made


def inexact_in_float32(graph: Graph) -> frozenset[str]:
    """The nodes of a calibrated graph whose sums may not be exact in float32."""
    if not any(node.op in QUANTIZERS for node in graph.topological()):
        return frozenset()
    found = bounds(graph)
    names = (node.name for node in graph.topological() if node.op not in QUANTIZERS)
    return frozenset(n for n in names if n in found and found[n].magnitude > FLOAT32_EXACT)


def _coded(graph: Graph) -> frozenset[str]:
    """The values that are on a grid of codes."""
    exponents: ValueExponents = {}
    for node in graph.topological():
        exponents[node.name] = value_exponent(node, exponents)
    return frozenset(name for name, exponent in exponents.items() if exponent is not None)


def _along_channels(log2_t: Tensor, x: Tensor) -> Tensor:
    """Thresholds [channels] in the shape of the last axes of x: [c, m] of depthwise filters."""
    import tensorflow as tf

    if log2_t.shape.rank == 0 or log2_t.shape[0] in (1, x.shape[-1]):
        return log2_t
    return tf.reshape(log2_t, x.shape[-2:])


def _clipped(x: Tensor, high: Tensor) -> Tensor:
    """`clip(x, 0, high)` for x on a grid, where `high` is the point of the grid nearest to 6.

    The gradient is that of ReLU6, because that of `minimum` would take six passes over x. Both are
    equal: `high` is 6, or it is 8 or 0 on a grid without points between it and 6.
    """
    import tensorflow as tf

    def run(x: Tensor) -> Tensor:
        limit = high if high.shape.rank == 0 else tf.broadcast_to(high, tf.shape(x))
        y = tf.raw_ops.ClipByValue(t=x, clip_value_min=0.0, clip_value_max=limit)
        return y, lambda upstream: tf.raw_ops.Relu6Grad(gradients=upstream, features=y)

    return tf.custom_gradient(run)(x)
