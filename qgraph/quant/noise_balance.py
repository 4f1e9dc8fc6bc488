"""Factors of channels that minimize the noise of quantized activations and weights.

A channel of small deviation in a tensor of large values has few codes, and large weights that
multiply it amplify its rounding errors. If the channel is scaled up, it has more codes, and these
weights shrink. The factors minimize a sum over layers, relative to the float network, of

    input noise   q_x^2 sum_c f_c^2 |W_c|^2 / var_n
    weight noise  q_w^2 sum_c E[x_c^2] f_n^2 / f_c^2 / var_n

where channel c is divided by f_c, the steps q follow from bits and the largest ranges with these
factors, and var_n is the variance of output n: after its activation and for the share that is not
clipped, if samples were given. Everything else comes from weights and batch norms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Moments
from qgraph.parallel import over_chunks
from qgraph.quant.activations import ActivatedChannels
from qgraph.quant.moments import known_moments, moments_of
from qgraph.rewrite.channels import ChannelMap, Ids
from qgraph.rewrite.constants import Float64, weights_of

STEPS = 200
RATE = 0.05  # of a step, in powers of two
NORM = 12.0  # the norm of this power replaces the largest range, because it is differentiable
TAIL = 4.0  # deviations from the mean to the end of a range
# The share of a mean that counts: rounded weights and biases cancel most of a constant error.
MEANS = 0.1
MIN_VARIANCE = 0.01  # of an output, as a share of the median
FLAT = 1e-9  # lower limit of the terms relative to the largest, if most outputs do not vary
# Beyond 2^12, a channel is negligible next to the others, and a factor gains nothing.
MAX_LOG2 = 12.0


@dataclass(frozen=True)
class LayerSteps:
    """Steps of a layer's input and of its weights, relative to the largest magnitude of each."""

    input: float = 2.0**-8
    weights: float = 2.0**-7


EIGHT_BITS = LayerSteps()


def noise_factors(
    graph: Graph,
    channels: ChannelMap,
    seen: Mapping[str, ActivatedChannels] | None = None,
    steps: Mapping[str, LayerSteps] | None = None,
) -> Float64:
    """log2 of the factor by which each channel is divided; 0 without batch-norm statistics.

    graph: float, with folded batch norms. seen: outputs by layer, from samples. steps: by layer;
    by default those of 8 bits.
    """
    layers = layer_noises(graph, channels, seen, steps)
    moved = np.zeros(channels.count, bool)
    for layer in layers:
        moved[layer.inputs] |= layer.known
    moved &= ~channels.frozen
    best, least = np.zeros(channels.count), np.inf
    log2, first, second = (np.zeros(channels.count) for _ in range(3))
    with over_chunks(len(layers)) as each:
        for step in range(1, STEPS + 1 if moved.any() else 1):
            slope, total = np.zeros(channels.count), 0.0
            for found in each(partial(LayerNoise.noise, log2=log2), layers):
                total += found.total
                for ids, change in found.slopes:
                    np.add.at(slope, ids, change)
            if total < least:
                best, least = log2, total
            slope = np.where(moved, slope, 0.0) / (total or 1.0)
            first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
            direction = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-6)
            log2 = log2 - RATE * (1 - step / (STEPS + 1)) * direction
            log2 = np.clip(log2, -MAX_LOG2, MAX_LOG2)
    return best


def layer_noises(
    graph: Graph,
    channels: ChannelMap,
    seen: Mapping[str, ActivatedChannels] | None = None,
    steps: Mapping[str, LayerSteps] | None = None,
) -> list[LayerNoise]:
    """The layers whose noise is known; arguments as in `noise_factors`."""
    seen, steps = seen or {}, steps or {}
    made = (
        _layer(graph, channels, node, seen.get(node.name), steps.get(node.name, EIGHT_BITS))
        for node in channels.layers
    )
    return [layer for layer in made if layer is not None]


@dataclass(frozen=True)
class NoiseSlopes:
    """The noise of a layer, and its derivatives by log2 of the factors of channels, over ln 2."""

    total: float
    slopes: Sequence[tuple[Ids, Float64]]


@dataclass(frozen=True)
class LayerNoise:
    """The noise of one layer as a function of factors.

    inputs, outputs: channels; for a depthwise layer, pairs. known: whether a batch norm has
    statistics of the inputs. ranges: of inputs. gains: |W|^2 / var of each input. largest: the
    largest |W|, [inputs, outputs] or of each pair. power: E[x^2] of each input, times taps.
    weights: 1 / var of each output. taps: the weights themselves, [taps, inputs, outputs] or of
    each pair.
    """

    steps: LayerSteps

    inputs: Ids
    outputs: Ids
    known: bool
    ranges: Float64
    gains: Float64
    largest: Float64
    power: Float64
    weights: Float64
    taps: Float64

    def noise(self, log2: Float64) -> NoiseSlopes:
        """The noise with these factors."""
        into, out = np.exp2(log2[self.inputs]), np.exp2(log2[self.outputs])
        step, shares = _norm(self.ranges / into)
        noise = (self.steps.input * step) ** 2 * self.gains * into**2
        slope = self.inputs, 2 * noise - 2 * noise.sum() * shares
        of_weights = (self._of_pairs if self.largest.ndim == 1 else self._of_products)(into, out)
        return NoiseSlopes(float(noise.sum() + of_weights.total), [slope, *of_weights.slopes])

    def _of_pairs(self, into: Float64, out: Float64) -> NoiseSlopes:
        step, shares = _norm(self.largest * into / out)
        noise = (self.steps.weights * step * out / into) ** 2 * self.power * self.weights
        change = 2 * noise - 2 * noise.sum() * shares
        return NoiseSlopes(float(noise.sum()), [(self.outputs, change), (self.inputs, -change)])

    @cached_property
    def _raised(self) -> tuple[float, Float64]:
        """The largest weight, and all powers relative to it."""
        size = float(self.largest.max()) or 1.0
        return size, (self.largest / size) ** NORM

    def _of_products(self, into: Float64, out: Float64) -> NoiseSlopes:
        size, raised = self._raised
        left, right = (into / into.max()) ** NORM, (out / out.min()) ** -NORM
        rows, columns = left * (raised @ right), right * (left @ raised)
        whole = float(rows.sum()) or 1.0
        step = self.steps.weights * size * into.max() / out.min() * whole ** (1 / NORM)
        inner, outer = self.power / into**2, self.weights * out**2
        noise = float(step**2 * inner.sum() * outer.sum())
        by_input, by_output = inner / (inner.sum() or 1.0), outer / (outer.sum() or 1.0)
        return NoiseSlopes(
            noise,
            [
                (self.inputs, 2 * noise * (rows / whole - by_input)),
                (self.outputs, 2 * noise * (by_output - columns / whole)),
            ],
        )


def _norm(values: Float64) -> tuple[float, Float64]:
    """The norm of `values`, and the derivative of its logarithm by the logarithm of each value."""
    largest = float(values.max()) or 1.0
    powers = (values / largest) ** NORM
    whole = float(powers.sum()) or 1.0
    return largest * whole ** (1 / NORM), powers / whole


def _layer(
    graph: Graph,
    channels: ChannelMap,
    node: Node,
    samples: ActivatedChannels | None,
    steps: LayerSteps,
) -> LayerNoise | None:
    """The noise of a layer; None if its outputs are unknown or it has groups of channels."""
    weights = weights_of(graph, node).astype(np.float64)
    inputs, outputs = channels.of(node.inputs[0]), channels.of(node.name)
    taps = weights.reshape(-1, *weights.shape[-2:])
    pairs = node.op == "depthwise_conv2d"
    made = _output_moments(graph, node)
    if samples is not None:
        variance, passed = samples.variance, samples.unclipped
    elif made is not None:
        variance, passed = made.deviation**2, np.ones(())
    else:
        return None
    if taps.shape[1] != len(inputs) or (pairs and taps.shape[2] != 1):
        return None
    if not variance.max(initial=0) > np.finfo(float).tiny / FLAT:
        return None  # the outputs do not vary, so noise has no reference
    if pairs:
        taps = taps[:, :, 0]
    squares, largest = (taps**2).sum(axis=0), np.abs(taps).max(axis=0)
    whole = variance if made is None else made.deviation**2
    least = max(MIN_VARIANCE * np.median(variance), FLAT * variance.max(initial=0))
    weight = passed / (variance + least)
    relative = squares * weight
    known = known_moments(graph, node.inputs[0])
    if known is None:  # as for independent inputs with equal moments
        power = np.full(len(inputs), whole.sum() / (squares.sum() or 1.0))
        ranges = TAIL * np.sqrt(power)
    else:
        power = (MEANS * known.mean) ** 2 + known.deviation**2
        ranges = np.abs(known.mean) + TAIL * known.deviation
        if samples is not None and samples.largest is not None:
            usual = np.abs(known.mean) + known.deviation  # later inputs reach it in any case
            ranges = np.maximum(samples.largest, usual)
    return LayerNoise(
        steps,
        inputs,
        outputs,
        known is not None,
        ranges,
        relative if pairs else relative.sum(axis=1),
        largest,
        len(taps) * power,
        weight,
        taps,
    )


def _output_moments(graph: Graph, layer: Node) -> Moments | None:
    """Moments of a layer's output, with its bias."""
    value, found = layer.name, moments_of(graph, layer.name)
    while found is None:
        users = graph.users(value)
        if len(users) != 1 or users[0].op != "bias_add":
            return None
        value = users[0].name
        found = moments_of(graph, value)
    return found
