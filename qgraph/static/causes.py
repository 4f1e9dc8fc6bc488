"""Find out why a layer costs accuracy, from its numbers; the most costly cause comes first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.exact.compare import Measured, original
from qgraph.exact.statistics import Statistics
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, QuantSpec, Role
from qgraph.numerics import aligned, quantize
from qgraph.quant.samples.data import chunk_inputs
from qgraph.quant.topology import sources
from qgraph.static.sensitivity import Part
from qgraph.static.switched import plain_constant
from qgraph.words import percent

# Larger ratios between the channels of a tensor, and peaks farther out, are unusual.
USUAL_SPREAD = 8.0
USUAL_TAIL = 4.0
# A channel whose deviation is below this share of the median one is almost constant.
NEAR_CONSTANT = 0.03
TAIL = 0.999
# It is reported if more than this share of weights round to zero.
VANISHED = 0.2


@dataclass(frozen=True)
class Cause:
    """A cause that costs about `lost` bits; `where`: in the weights (or bias) or in the output."""

    where: str
    lost: float
    text: str


def causes(
    graph: Graph, floating: Graph, part: Part, measured: Measured, data: Mapping[str, Array]
) -> list[Cause]:
    """The causes that the numbers show, the most costly first; empty if there are none.

    graph: calibrated, from `floating`. Channels are examined on one chunk of `data`.
    """
    layer, known = graph.nodes[part.name], measured.statistics
    outputs = [q for q in sorted(part.output) if original(graph, q) in floating.types]
    inputs = [v for v in _input_of(graph, layer) if v in floating.types]
    feeds = {name: chunks[0] for name, chunks in chunk_inputs(floating, data).items()}
    values = evaluate(floating, feeds, [*{original(graph, q) for q in outputs}, *inputs])
    found: list[Cause] = []
    for name in sorted(part.weights):
        quantizer = graph.nodes[name]
        if spec_of(quantizer).role in (Role.WEIGHT, Role.SCALE) and name in layer.inputs:
            x = values[inputs[0]] if inputs else None
            found += _of_weights(graph, floating, layer, quantizer, x)
        else:
            found += _of_sums(quantizer, graph.constant(quantizer.inputs[0]), known)
    for name in outputs:
        found += _of_output(graph, graph.nodes[name], values[original(graph, name)], known)
    return sorted(found, key=lambda cause: -cause.lost)


def rounds_to_zero(share: float) -> str:
    return f"{percent(share)} of its weights round to zero"


def _input_of(graph: Graph, layer: Node) -> list[str]:
    """The float value of a layer's input, before ops that only move values."""
    if not layer.inputs:
        return []
    node = graph.producer(layer.inputs[0])
    return [original(graph, node.name) if node.op == "quantize" else layer.inputs[0]]


# -- weights --------------------------------------------------------------------------------


def _of_weights(
    graph: Graph, floating: Graph, layer: Node, quantizer: Node, x: Array | None
) -> Iterator[Cause]:
    spec = spec_of(quantizer)
    plain = plain_constant(graph, floating, quantizer)
    codes = quantize(plain, spec).codes
    sizes = np.abs(plain).astype(np.float64)
    share = float(((codes == 0) & (sizes > 0)).mean()) if sizes.size else 0.0
    consequence = f"; {rounds_to_zero(share)}" if share > VANISHED else ""
    spreads = [s for side in _sides(layer, spec) if (s := _Spread.of(sizes, layer, side))]
    worst = max(spreads, key=lambda s: s.ratio, default=None)
    if worst is not None and worst.ratio > USUAL_SPREAD:
        text = (
            f"{worst.side} channel {worst.channel} has weights up to {worst.peak:.3g}, "
            f"{worst.ratio:.3g} times the median channel's{consequence}"
        )
        lost = np.log2(worst.ratio / USUAL_SPREAD) + 1
        behind = _stillness(x, worst) if x is not None else None
        if behind is not None:
            words = f"{percent(behind)} of the median channel's deviation"
            text += f"; its input hardly varies ({words})" if behind else "; its input is constant"
            lost += 1
        yield Cause("weights", float(lost), text)
    elif consequence:
        text = f"{rounds_to_zero(share)}: the largest weights determine the step"
        yield Cause("weights", 2 * share, text)
    largest_code = spec.lo if not codes.size else int(np.abs(codes).max())
    unused = np.log2((spec.hi + 1) / (largest_code + 1)) if largest_code > 0 else 0.0
    if unused >= 1:
        text = (
            f"its largest code is {largest_code} of {spec.hi}: "
            f"{unused:.1f} of {spec.bits} bits unused"
        )
        yield Cause("weights", float(unused), text)
    clipped = float((sizes > np.ldexp(spec.hi + 1.0, -aligned(spec.exponent, sizes.shape))).mean())
    if clipped > 0.05:
        yield Cause("weights", 1 + clipped, f"{percent(clipped)} of its weights are clipped")


@dataclass(frozen=True)
class _Spread:
    """The ratio of the largest channel of weights to the median channel."""

    side: str
    channel: int
    peak: float
    ratio: float

    @staticmethod
    def of(sizes: Array, layer: Node, side: str) -> _Spread | None:
        if layer.op == "depthwise_conv2d":
            sizes = sizes.reshape(-1, sizes.shape[-2] * sizes.shape[-1])
        axis = sizes.ndim - (1 if side == "output" else 2)
        peaks = sizes.max(axis=tuple(i for i in range(sizes.ndim) if i != axis), initial=0.0)
        alive = peaks[peaks > 0]
        if len(alive) < 2:
            return None
        channel = int(peaks.argmax())
        peak = float(peaks[channel])
        return _Spread(side, channel, peak, float(peak / np.median(alive)))


def _sides(layer: Node, spec: QuantSpec) -> list[str]:
    """The sides whose channels share a scale: with scales per channel, only the input."""
    depthwise = layer.op == "depthwise_conv2d"
    return ["output"] * (not spec.per_channel) + ["input"] * (not depthwise)


def _stillness(x: Array, spread: _Spread) -> float | None:
    """The ratio of an input channel's deviation to the median deviation, if it is very small."""
    deviations = x.reshape(-1, x.shape[-1]).astype(np.float64).std(axis=0)
    alive = deviations[deviations > 0]
    if spread.side != "input" or spread.channel >= len(deviations) or not len(alive):
        return None
    ratio = float(deviations[spread.channel] / np.median(alive))
    return ratio if ratio < NEAR_CONSTANT else None


# -- sums and outputs -----------------------------------------------------------------------


def _of_sums(
    quantizer: Node, constant: Array | None, known: Mapping[str, Statistics]
) -> Iterator[Cause]:
    spec = spec_of(quantizer)
    found = known.get(quantizer.name)
    if constant is not None and spec.role == Role.BIAS:
        ends = np.ldexp(spec.hi + 1.0, -aligned(spec.exponent, constant.shape))
        past = np.abs(constant) > ends
        if past.any():
            text = f"{int(past.sum())} of {past.size} biases saturate at {float(np.max(ends)):g}"
            yield Cause("weights", 4.0, text)
    elif constant is None and found is not None and found.below + found.above:
        share = (found.below + found.above) / found.elements
        yield Cause("weights", 2.0, f"{percent(share)} of its sums saturate their {spec.bits} bits")


def _of_output(
    graph: Graph, quantizer: Node, values: Array, known: Mapping[str, Statistics]
) -> Iterator[Cause]:
    spec = spec_of(quantizer)
    found = known.get(quantizer.name)
    if found is None or not isinstance(spec.exponent, int):
        return
    own = found.max_exponent(spec)
    if own is None:
        return
    coarser = own - spec.exponent
    if coarser > 0:
        why = _forced(graph, quantizer, known)
        text = f"its output's step is {coarser} bit{'s' * (coarser > 1)} coarser than it needs"
        yield Cause("output", float(coarser), text + why)
    clipped = (found.below + found.above) / max(found.elements, 1)
    gain = found.sqnr(spec, min(own, spec.exponent)) - found.sqnr(spec, spec.exponent)
    if clipped and gain > 1:
        text = f"{percent(clipped)} of its output is clipped, which costs {gain:.1f} dB"
        yield Cause("output", gain / 6, text)
    yield from _of_channels(values)
    tail = _tail(found)
    if tail and found.histogram.largest / tail > USUAL_TAIL:
        ratio = found.histogram.largest / tail
        text = (
            f"its output has a long tail: up to {found.histogram.largest:.3g}, but "
            f"{TAIL:.1%} of it below {tail:.3g}"
        )
        yield Cause("output", float(np.log2(ratio / USUAL_TAIL)), text)


def _forced(graph: Graph, quantizer: Node, known: Mapping[str, Statistics]) -> str:
    """The member that makes the step of a group coarse, and the op that joins the two."""
    group = spec_of(quantizer).group
    if group is None:
        return ""
    members = [
        n.name
        for n in graph.topological()
        if n.op in ("quantize", "lookup") and spec_of(n).group == group and n.name in known
    ]
    widest = max(members, key=lambda name: known[name].histogram.largest)
    joins = [
        n
        for n in graph.topological()
        if op_definition(n.op).same_scale
        and quantizer.name in {s for v in n.inputs for s in sources(graph, v)}
    ]
    by = f" through {joins[0].op} `{joins[0].name}`" if joins else ""
    return f": it shares the scale of `{original(graph, widest)}`{by}"


def _of_channels(values: Array) -> Iterator[Cause]:
    if values.ndim < 2 or not values.size or values.dtype.kind != "f":
        return
    peaks = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
    alive = peaks[peaks > 0]
    if len(alive) < 2:
        return
    ratio, channel = float(peaks.max() / np.median(alive)), int(peaks.argmax())
    if ratio > USUAL_SPREAD:
        text = (
            f"channel {channel} of its output reaches {peaks.max():.3g}, {ratio:.3g} times the "
            "median channel"
        )
        yield Cause("output", float(np.log2(ratio / USUAL_SPREAD)) + 1, text)


def _tail(found: Statistics) -> float:
    """The 99.9th percentile of the magnitudes of nonzero elements."""
    counts = found.histogram.counts
    sizes = np.abs(found.histogram.centres())
    order = np.argsort(sizes)
    below = np.cumsum(counts[order])
    if not below[-1]:
        return 0.0
    return float(sizes[order][np.searchsorted(below, TAIL * below[-1])])
