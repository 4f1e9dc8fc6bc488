"""Bounds of sums, from the actual weights: exact float types, and bits of accumulators.

A sum of products is exact in float32, in any order, if for every output the
sum of |weight code| * max|input code| (plus what is added) is at most 2^24; 2^53 for float64
(docs/numerics.md, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import ExactnessError, GraphError
from qgraph.exact.sums import (
    FLOAT32_EXACT,
    FLOAT64_EXACT,
    Mask,
    Sums,
    farthest_input,
    seen_taps,
    sums_of_products,
)
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.linear import COMPUTE, ConvAttrs
from qgraph.ir.ops.structure import QuantizerAttrs
from qgraph.ir.types import AnyExponent, Array, Codes, QuantSpec
from qgraph.numerics import aligned, checked_exponent, quantized_constant
from qgraph.quant.topology import QUANTIZERS, ValueExponents, has_integer_form, value_exponent

FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Bound:
    """Codes of a value are in `low..high`; `magnitude` bounds the absolute value of partial sums.

    `channel` is the output channel with the largest magnitude, for sums in an accumulator.
    """

    low: int
    high: int
    magnitude: int
    channel: int | None = None

    @property
    def exact_in(self) -> str:
        """The narrowest float type that simulates the value exactly, or `none`."""
        if self.magnitude <= FLOAT32_EXACT:
            return "float32"
        return "float64" if self.magnitude <= FLOAT64_EXACT else "none"

    @property
    def width(self) -> int:
        """Bits of the narrowest signed accumulator that cannot overflow."""
        return (
            max((-self.low - 1).bit_length() if self.low < 0 else 0, max(self.high, 0).bit_length())
            + 1
        )


def bounds(graph: Graph) -> dict[str, Bound]:
    """A bound for every integer value of a calibrated graph, by value name.

    Raises ExactnessError for a value that neither float64 nor int64 can hold, and for one on a
    scale that float32 does not support.
    """
    found = _bounds(graph)
    exponents: ValueExponents = {}
    for node in graph.topological():
        exponents[node.name] = value_exponent(node, exponents)
        exponent = exponents[node.name]
        if node.name in found and exponent is not None:
            _check_scale(node.name, found[node.name], exponent)
    return found


def _check_scale(name: str, bound: Bound, exponent: AnyExponent) -> None:
    """Raise ExactnessError if float32 cannot hold the value of a partial sum."""
    checked_exponent(exponent, name)
    smallest = exponent if isinstance(exponent, int) else int(np.min(exponent))
    largest = bound.magnitude * 2.0**-smallest
    if largest > FLOAT32_MAX:
        raise ExactnessError(
            f"its codes go up to {bound.magnitude}, which represents {largest:.3g}: more than "
            "float32 can hold",
            node=name,
            hint="the tensor's values are too large; scale the network's weights or inputs",
        )


def _bounds(graph: Graph) -> dict[str, Bound]:
    found: dict[str, Bound] = {}
    codes: dict[str, Array] = {}
    sums: dict[str, Sums] = {}
    for node in graph.topological():
        if node.op in QUANTIZERS:
            constant = graph.constant(node.inputs[0]) if node.op == "quantize" else None
            if constant is not None:
                codes[node.name] = _codes(constant, node.typed(QuantizerAttrs).spec)
                found[node.name] = _of_codes(codes[node.name])
            else:
                found[node.name] = _of_reach(graph, node, [])
            continue
        if not node.inputs or any(v not in found for v in node.inputs):
            continue
        inputs = [found[v] for v in node.inputs]
        reached = _sums_of(graph, node, inputs, codes, sums)
        if reached is not None:
            sums[node.name] = reached
        if reached is None and not has_integer_form(node):
            continue
        bound = _bound(reached) if reached is not None else _of_reach(graph, node, inputs)
        if bound.exact_in == "none":
            raise ExactnessError(
                f"sums reach {bound.magnitude}: more than float64 represents exactly",
                node=node.name,
                hint="fewer bits, or a smaller layer",
            )
        found[node.name] = bound
    return found


def _codes(constant: Array, spec: QuantSpec) -> Array:
    """Codes as floats, which are exact and faster to sum than integers."""
    value = quantized_constant(constant, spec)
    scale = np.ldexp(np.ones((), value.dtype), aligned(spec.exponent, value.shape))
    return np.multiply(value, scale, out=value)


def _of_codes(codes: Array) -> Bound:
    low, high = int(codes.min(initial=0)), int(codes.max(initial=0))
    return Bound(low, high, max(-low, high))


def _of_reach(graph: Graph, node: Node, inputs: list[Bound]) -> Bound:
    """The bound that the op's definition gives."""
    rule = op_definition(node.op).reach
    if rule is None:
        raise GraphError(f"{node.op}: has an integer rule but no `reach`", node=node.name)
    try:
        found = rule(node.attributes, inputs, [graph.types[v].shape for v in node.inputs])
    except ExactnessError as error:
        raise ExactnessError(error.message, node=node.name, hint=error.hint) from None
    return Bound(found.low, found.high, found.magnitude)


def _bound(sums: Sums) -> Bound:
    low, high = int(sums.lows.min()), int(sums.highs.max())
    channel = int(sums.highs.argmax() if high >= -low else sums.lows.argmin())
    return Bound(low, high, int(sums.magnitudes.max()), channel)


def _sums_of(
    graph: Graph,
    node: Node,
    inputs: list[Bound],
    codes: Mapping[str, Array],
    sums: Mapping[str, Sums],
) -> Sums | None:
    """Sums with constant weights, and the constant bias that is added in the accumulator."""
    second = codes.get(node.inputs[1]) if len(inputs) == 2 else None
    if second is None:
        return None
    if node.op == "bias_add" and node.inputs[0] in sums:
        return sums[node.inputs[0]].plus(second.astype(np.int64))
    if node.op not in COMPUTE:
        return None
    x, windows = inputs[0], _windows(graph, node, second.shape)
    return sums_of_products(node.op, second, x.low, x.high, x.magnitude, windows)


def _windows(graph: Graph, node: Node, filters: tuple[int, ...]) -> Sequence[Mask]:
    shape = graph.types[node.inputs[0]].shape
    if node.op == "matmul" or shape is None:
        return (True,)
    kernel, image = (filters[0], filters[1]), shape[1:3]
    if None in image:
        return (True,)
    attrs, sizes = node.typed(ConvAttrs), tuple(int(d or 0) for d in image)
    pads = attrs.pads(sizes, kernel)
    return seen_taps(sizes, kernel, attrs.strides, attrs.dilations, pads)


def in_accumulator(node: Node, bound: Bound) -> bool:
    """Whether a node computes sums of products, or adds a bias before they are requantized."""
    return node.op in (*COMPUTE, "batch_matmul") or bound.channel is not None


def accumulator_bits(graph: Graph, found: Mapping[str, Bound], layer: str) -> int:
    """Bits of the narrowest accumulator for a layer, for its sums before and after the bias.

    A bias that is added after a quantizer does not count.
    """
    widest, value = found[layer].width, layer
    while biases := [n.name for n in graph.users(value) if n.op == "bias_add" and n.name in found]:
        value = biases[0]
        widest = max(widest, *(found[name].width for name in biases))
    return widest


def check_accumulators(graph: Graph, found: Mapping[str, Bound], bits: int) -> None:
    """Raise ExactnessError, with an explanation, if a sum can exceed an accumulator of `bits`.

    The error's `evidence` has codes of the layer's input that cause this, if its weights are
    constant and its size is known.
    """
    for node in graph.topological():
        bound = found.get(node.name)
        if bound is None or not in_accumulator(node, bound) or bound.width <= bits:
            continue
        side = "highest" if bound.high >= -bound.low else "lowest"
        other = "lowest" if side == "highest" else "highest"
        what, remedy = "sums", "use a wider accumulator, fewer bits, or wrapping"
        if bound.channel is not None:  # otherwise both factors vary
            what = f"channel {bound.channel}"
            remedy = (
                f"this happens if inputs have their {side} code where the weight is positive, and "
                f"their {other} where it is negative; {remedy}"
            )
        raise ExactnessError(
            f"{what} can reach {bound.high if side == 'highest' else bound.low}: "
            f"this needs {bound.width} bits, but the accumulator has {bits}",
            node=node.name,
            hint=remedy,
            evidence=_evidence(graph, node, found, bound, side),
        )


def _evidence(
    graph: Graph, node: Node, found: Mapping[str, Bound], bound: Bound, side: str
) -> dict[str, Codes]:
    if bound.channel is None:  # both factors vary
        return {}
    layer = node if node.op in COMPUTE else graph.producer(node.inputs[0])
    x, filters = layer.inputs
    shape, constant = graph.types[x].shape, graph.constant(graph.producer(filters).inputs[0])
    if constant is None or shape is None or None in shape[1:]:
        return {}
    whole = (1, *(int(d or 0) for d in shape[1:]))
    attrs, window = {}, layer.attributes
    if isinstance(window, ConvAttrs):
        pads = window.pads(whole[1:3], (constant.shape[0], constant.shape[1]))
        attrs = {"strides": window.strides, "dilations": window.dilations, "pads": pads}
    weights = _codes(constant, graph.producer(filters).typed(QuantizerAttrs).spec)
    ends = (found[x].low, found[x].high)
    return {x: farthest_input(layer.op, attrs, whole, ends, weights, bound.channel, side)}
