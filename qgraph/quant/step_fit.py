"""Scale whole tensors so that their ranges end at powers of two.

The best threshold of a tensor is a real number, but a scale is a power of two: up to half of the
codes are lost. A layer's output may be multiplied by any factor that the next layer undoes, so a
factor between 1 and 2 can bring the best threshold to a power of two. It also moves the ranges of
the weights on both sides. Factors, in eighths of a power of two, minimize the noise of both, which
is that of `qgraph.quant.noise_balance` with measured errors instead of steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_if_any
from qgraph.ir.types import Array, QuantSpec, Role
from qgraph.numerics import exponent_for_max
from qgraph.parallel import over_chunks
from qgraph.quant.activations import NUMBERS, SAMPLES
from qgraph.quant.float_statistics import FloatStatistics
from qgraph.quant.noise_balance import MAX_LOG2, LayerNoise
from qgraph.quant.reconstruction.reconstruct import FINER
from qgraph.quant.samples.data import at_least, thinned
from qgraph.quant.thresholds import (
    FINER_EXPONENTS,
    Distribution,
    Histogram,
    candidates_from,
    error_of_step,
)
from qgraph.rewrite.channels import ChannelMap, Ids
from qgraph.rewrite.constants import Float64

GAINS = 8  # factors in a power of two
SWEEPS = 8
UNIFORM = 12.0  # noise in squared steps, as in `noise_balance`, over the squared error of rounding


def fitted_to_steps(
    channels: ChannelMap,
    log2: Float64,
    layers: Sequence[LayerNoise],
    quantized: Graph,
    data: Mapping[str, Array],
) -> Float64:
    """log2 of the factors by which channels are divided, after whole tensors were scaled.

    channels: of the float graph. log2: the factors of `quantized`, which has the names of the float
    graph, and quantizers without exponents. layers: the noise of layers. data: samples, of which
    about `SAMPLES` are used. Tensors with a channel that keeps its scale do not change.
    """
    tensors = _Tensors(channels)
    errors = _activation_errors(quantized, tensors, data)
    free = [t for t in errors if not channels.frozen[tensors.members(t)].any()]
    gains = dict.fromkeys(free, 0)
    beside = defaultdict[int, list[_FittedLayer]](list)
    with over_chunks(len(layers)) as each:
        found = [*each(lambda layer: _FittedLayer.of(layer, tensors, errors, log2), layers)]
    for fitted in found:
        for tensor in {fitted.input, fitted.output} & gains.keys():
            beside[tensor].append(fitted)

    def noise(tensor: int, gain: int) -> float:
        tried = {**gains, tensor: gain}
        return sum(layer.noise(tried) for layer in beside[tensor])

    for _ in range(SWEEPS):
        before = dict(gains)
        for tensor in free:
            gains[tensor] = min(range(GAINS), key=lambda gain: noise(tensor, gain))
        if gains == before:
            break
    made = log2.copy()
    for tensor, gain in gains.items():
        scaled = made[tensors.members(tensor)] - gain / GAINS
        if (np.abs(scaled) <= MAX_LOG2).all():
            made[tensors.members(tensor)] = scaled
    return made


class _Tensors:
    """Channels in sets: all channels of a value, and of values that share channels with it."""

    def __init__(self, channels: ChannelMap) -> None:
        self.channels = channels
        self.parents = np.arange(channels.count)
        for value in channels.ids:
            members = np.unique(channels.of(value)).tolist()
            for other in members[1:]:
                self.parents[self._root(other)] = self._root(members[0])
        self.roots = np.array([self._root(i) for i in range(channels.count)], np.int64)

    def _root(self, channel: int) -> int:
        while self.parents[channel] != channel:
            channel = int(self.parents[channel])
        return channel

    def of(self, ids: Ids) -> int:
        """The set that the channels of a value are in."""
        return int(self.roots[ids[0]])

    def of_value(self, graph: Graph, value: str) -> int | None:
        """The set of a value, or of the nearest value before it that the float graph has."""
        while value not in self.channels.ids:
            node = graph.producer(value)
            if not node.inputs:
                return None
            value = node.inputs[0]
        ids = self.channels.of(value)
        return self.of(ids) if len(ids) else None

    def members(self, tensor: int) -> Ids:
        """The channels of a set."""
        return np.flatnonzero(self.roots == tensor)


@dataclass(frozen=True)
class _FittedLayer:
    """The noise of a layer by the gains of its input and of its output.

    of_input: [GAINS], by the gain of the input. of_weights: [GAINS], by the gain of the output over
    that of the input, since powers of two change nothing.
    """

    input: int
    output: int
    of_input: Float64
    of_weights: Float64

    @staticmethod
    def of(
        layer: LayerNoise, tensors: _Tensors, errors: Mapping[int, Float64], log2: Float64
    ) -> _FittedLayer:
        into, out = np.exp2(log2[layer.inputs]), np.exp2(log2[layer.outputs])
        tensor = tensors.of(layer.inputs)
        measured = errors.get(tensor, np.zeros(GAINS))
        return _FittedLayer(
            tensor,
            tensors.of(layer.outputs),
            UNIFORM * measured * float((layer.gains * into**2).sum()),
            _weight_errors(layer, into, out),
        )

    def noise(self, gains: Mapping[int, int]) -> float:
        """The noise with these gains of tensors, in eighths of a power of two."""
        into, out = gains.get(self.input, 0), gains.get(self.output, 0)
        return float(self.of_input[into] + self.of_weights[(out - into) % GAINS])


def _weight_errors(layer: LayerNoise, into: Float64, out: Float64) -> Float64:
    """The noise of rounded weights by their gain [GAINS], with the best of the usual scale and of
    finer ones.

    into, out: factors by which inputs and outputs are divided.
    """
    power = layer.power / len(layer.taps)
    if layer.largest.ndim == 1:  # pairs
        weights, counts = layer.taps * (into / out), power * layer.weights * (out / into) ** 2
    else:
        weights = layer.taps * (into[:, None] / out)
        counts = (power / into**2)[:, None] * (layer.weights * out**2)
    largest, levels = float(np.abs(weights).max(initial=0)), round(1 / layer.steps.weights)
    found = np.zeros(GAINS)
    for gain in range(GAINS if largest else 0):
        scale = 2.0 ** (gain / GAINS)
        coarsest = np.ceil(np.log2(largest * scale / levels))

        def error(step: float, scale: float = scale) -> float:
            rounded = np.clip(np.rint(weights / step * scale), -levels, levels - 1)
            return float(((rounded * step / scale - weights) ** 2 * counts).sum())

        found[gain] = min(error(2.0 ** (coarsest - finer)) for finer in range(FINER + 1))
    return UNIFORM * found


def _activation_errors(
    quantized: Graph, tensors: _Tensors, data: Mapping[str, Array]
) -> dict[int, Float64]:
    """Mean squared error by gain [GAINS] of each set, with the best exponents for each gain.

    Quantizers with one scale have the exponent that is best for all of them.
    """
    few = thinned(quantized, data, at_least(data, SAMPLES, NUMBERS))
    seen = FloatStatistics.of(quantized, few).tensors
    found: dict[int, Float64] = {}
    groups = defaultdict[tuple[int, str], list[tuple[Histogram, QuantSpec]]](list)
    for node, spec in _of_activations(quantized.topological()):
        known: Distribution | None = seen.get(node.name)
        tensor = tensors.of_value(quantized, node.inputs[0])
        if tensor is None or known is None or known.histogram is None:
            continue
        if known.histogram.largest:
            groups[tensor, spec.group or node.name].append((known.histogram, spec))
    for (tensor, _), members in groups.items():
        errors = np.array([_least_error(members, 2.0 ** (gain / GAINS)) for gain in range(GAINS)])
        found[tensor] = found.get(tensor, 0.0) + errors
    return found


def _of_activations(nodes: Iterable[Node]) -> Iterable[tuple[Node, QuantSpec]]:
    """The quantizers of activations, with their specs."""
    for node in nodes:
        spec = spec_if_any(node)
        if node.op == "quantize" and spec is not None and spec.role == Role.ACTIVATION:
            yield node, spec


def _least_error(members: Sequence[tuple[Histogram, QuantSpec]], gain: float) -> float:
    """The least mean squared error over exponents, if tensors are multiplied by `gain`."""
    largest = max(histogram.largest for histogram, _ in members) * gain
    bits, signed = members[0][1].bits, members[0][1].signed
    exponents = candidates_from(exponent_for_max(largest, bits, signed), FINER_EXPONENTS)

    def error(step: float) -> float:
        return sum(
            error_of_step(histogram, spec, step) / float(histogram.counts.sum() + histogram.zeros)
            for histogram, spec in members
        )

    return min(error(2.0**-exponent / gain) for exponent in exponents)
