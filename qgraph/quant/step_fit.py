"""Scale whole tensors so that their ranges end at powers of two.

The best threshold of a tensor is a real number, but a scale is a power of two: up to half of the
codes are lost. A layer's output may be multiplied by any factor that the next layer undoes, so a
factor between 1 and 2 brings the best threshold to a power of two. Factors multiply all channels of
the tensors that share channels, in steps of an eighth of a power of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_if_any
from qgraph.ir.types import Array, QuantSpec, Role
from qgraph.numerics import exponent_for_max
from qgraph.quant.activations import NUMBERS, SAMPLES
from qgraph.quant.data import at_least, thinned
from qgraph.quant.float_statistics import FloatStatistics
from qgraph.quant.noise_balance import EIGHT_BITS, MAX_LOG2, LayerSteps
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
# Weights with fewer bits than inputs make more noise than these, and a factor moves their ranges
# too. Their factors stay those of the least estimated noise.
FINEST_WEIGHTS = 2.0  # steps of weights, in steps of inputs


def fitted_to_steps(
    channels: ChannelMap,
    log2: Float64,
    quantized: Graph,
    data: Mapping[str, Array],
    steps: Mapping[str, LayerSteps],
) -> Float64:
    """log2 of the factors by which channels are divided, after whole tensors were scaled.

    channels: of the float graph. log2: the factors of `quantized`, which has the same names and
    quantizers without exponents. data: samples, of which about `SAMPLES` are used. steps: those of
    each layer. Tensors with a channel that keeps its scale do not change.
    """
    tensors = _Tensors(channels)
    coarse = {
        tensor
        for layer in channels.layers
        if _is_coarse(steps.get(layer.name, EIGHT_BITS))
        for value in (layer.inputs[0], layer.name)
        for tensor in tensors.of(channels.of(value))
    }
    errors = _errors(quantized, tensors, data)
    made = log2.copy()
    for tensor, of_gains in errors.items():
        members = tensors.members(tensor)
        if tensor in coarse or channels.frozen[members].any():
            continue
        gain = int(np.argmin(of_gains)) / GAINS
        if (np.abs(made[members] - gain) <= MAX_LOG2).all():
            made[members] -= gain
    return made


def _is_coarse(steps: LayerSteps) -> bool:
    return steps.weights > FINEST_WEIGHTS * steps.input


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

    def of(self, ids: Ids) -> list[int]:
        """The set of a value's channels, which is one; empty for a value without channels."""
        return [int(root) for root in self.roots[ids[:1]]]

    def of_value(self, graph: Graph, value: str) -> list[int]:
        """The set of a value, or of the nearest value before it that the float graph has."""
        while value not in self.channels.ids:
            node = graph.producer(value)
            if not node.inputs:
                return []
            value = node.inputs[0]
        return self.of(self.channels.of(value))

    def members(self, tensor: int) -> Ids:
        """The channels of a set."""
        return np.flatnonzero(self.roots == tensor)


def _errors(quantized: Graph, tensors: _Tensors, data: Mapping[str, Array]) -> dict[int, Float64]:
    """Squared error by gain [GAINS] of each set, at the best exponents for each gain.

    Quantizers with one scale have the exponent that is best for all of them.
    """
    few = thinned(quantized, data, at_least(data, SAMPLES, NUMBERS))
    seen = FloatStatistics.of(quantized, few).tensors
    found: dict[int, Float64] = {}
    groups: dict[tuple[int, str], list[tuple[Histogram, QuantSpec]]] = {}
    for node, spec in _of_activations(quantized.topological()):
        known: Distribution | None = seen.get(node.name)
        if known is None or known.histogram is None or not known.histogram.largest:
            continue
        for tensor in tensors.of_value(quantized, node.inputs[0]):
            place = tensor, spec.group or node.name
            groups.setdefault(place, []).append((known.histogram, spec))
    for (tensor, _), members in groups.items():
        errors = np.array([_least_error(members, gain / GAINS) for gain in range(GAINS)])
        found[tensor] = found.get(tensor, 0.0) + errors
    return found


def _of_activations(nodes: Iterable[Node]) -> Iterable[tuple[Node, QuantSpec]]:
    """The quantizers of activations, with their specs."""
    for node in nodes:
        spec = spec_if_any(node)
        if node.op == "quantize" and spec is not None and spec.role == Role.ACTIVATION:
            yield node, spec


def _least_error(members: Sequence[tuple[Histogram, QuantSpec]], log2_gain: float) -> float:
    """The least mean squared error over exponents, if tensors are multiplied by a gain."""
    gain = 2.0**log2_gain
    largest = max(histogram.largest for histogram, _ in members) * gain
    bits, signed = members[0][1].bits, members[0][1].signed
    exponents = candidates_from(exponent_for_max(largest, bits, signed), FINER_EXPONENTS)

    def error(step: float) -> float:
        return sum(
            error_of_step(histogram, spec, step) / float(histogram.counts.sum() + histogram.zeros)
            for histogram, spec in members
        )

    return min(error(2.0**-exponent / gain) for exponent in exponents)
