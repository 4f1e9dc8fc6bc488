"""Cross-layer equalisation: give the channels of every layer's weights comparable ranges.

A channel between two layers may be scaled freely if the second layer undoes it: ReLU, pools,
sums and concats commute with a positive factor. Per-tensor scales lose precision in channels of
small range, so factors are chosen that make the ranges of a channel's producers and consumers equal
(Nagel et al., 2019, "Data-Free Quantization", section 4.1, here over whole groups of layers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from qgraph.errors import PassError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array
from qgraph.parallel import over_chunks
from qgraph.passes import Pass, option
from qgraph.quant.noise_balance import MAX_LOG2, noise_factors
from qgraph.rewrite.channels import ChannelMap, Ids, channel_map
from qgraph.rewrite.constants import Float64, times, weights_of
from qgraph.rewrite.rewriter import Rewriter

SWEEPS = 40
STEPS_PER_POWER = 16  # steps of given factors in a power of two
FACTORS_HINT = (
    "factors are for one network, plan and list of passes: take them from its own exponents.json"
)


@dataclass(frozen=True)
class EqualizeChannels(Pass):
    """Scale channels between layers so that their weights' ranges meet. Keeps the function.

    ReLU6 becomes ReLU and a clip of 6 / factor per channel. With `biases` a channel's range
    includes its bias: a channel of tiny weights may have a large constant value, which, scaled up,
    would dominate the range of the whole activation. With `powers_of_two` factors are rounded to
    powers of two, which makes the rewrite exact in floating point. With `noise`, ranges need
    not be equal: factors minimize the noise of 8-bit codes, by the statistics of batch norms, and
    channels without a batch norm keep their scale. `quantize` computes `factors` for the bits of
    its target, from samples if there are any (`qgraph.static.channel_factors`): log2 in
    sixteenths, for the outputs of a layer.
    """

    biases: bool = option("Include biases in the range of a channel.", default=True)
    powers_of_two: bool = option("Round factors to powers of two.", default=False)
    noise: bool = option("Minimize noise instead of making ranges equal.", default=False)
    measured: bool = option(
        "With `noise` and samples: ranges of channels are the largest values of samples.",
        default=False,
    )
    factors: Mapping[str, tuple[int, ...]] | None = option(
        "Given factors for the outputs of layers, like {conv=[16, 0, -8]}: log2 in sixteenths.",
        default=None,
    )
    name: ClassVar[str] = "equalize-channels"
    requires: ClassVar[frozenset[str]] = frozenset({"batch-norm-folded"})

    def apply(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        channels = channel_map(graph)
        if self.factors is not None:
            log2 = given_log2(channels, self.factors)
            graph.factors = dict(self.factors)
        elif self.noise:
            log2 = noise_factors(graph, channels)
        else:
            log2 = _factors(graph, channels, self.biases)
        if self.powers_of_two:
            log2 = np.rint(log2)
        factors = np.exp2(log2)
        rewriter.rule = "equalize"
        for node in list(graph.topological()):
            _scale(rewriter, node, channels, factors)
        for value, moments in graph.moments.items():
            if value in channels.ids:
                graph.moments[value] = moments.scaled(1 / factors[channels.of(value)])


def factors_by_layer(channels: ChannelMap, log2: Float64) -> dict[str, tuple[int, ...]]:
    """Factors in the form of `EqualizeChannels.factors`, for all layers that can have them."""
    steps = np.rint(log2 * STEPS_PER_POWER).astype(np.int64)
    outputs = ((layer.name, channels.of(layer.name)) for layer in channels.layers)
    return {
        name: tuple(steps[ids].tolist()) for name, ids in outputs if not channels.frozen[ids].all()
    }


def given_log2(channels: ChannelMap, factors: Mapping[str, tuple[int, ...]]) -> Float64:
    """log2 of given factors. Raises PassError if they do not fit the network."""
    known = {layer.name: channels.of(layer.name) for layer in channels.layers}
    steps, given = np.zeros(channels.count), np.zeros(channels.count, bool)
    for name, found in factors.items():
        if name not in known:
            raise PassError("no layer of this name takes factors", node=name, hint=FACTORS_HINT)
        ids = known[name]
        if len(ids) != len(found):
            counts = f"has {len(ids)} outputs, and {len(found)} factors are given"
            raise PassError(counts, node=name, hint=FACTORS_HINT)
        if max(map(abs, found), default=0) > MAX_LOG2 * STEPS_PER_POWER:
            wrong = f"a factor is outside 2^-{MAX_LOG2:g} to 2^{MAX_LOG2:g}"
            raise PassError(wrong, node=name, hint=FACTORS_HINT)
        wanted = np.array(found, np.float64)
        if wanted[channels.frozen[ids]].any():
            wrong = "a factor is given for a channel that keeps its scale"
            raise PassError(wrong, node=name, hint=FACTORS_HINT)
        if (given[ids] & (steps[ids] != wanted)).any():
            wrong = "its factors differ from those of another layer with the same channels"
            raise PassError(wrong, node=name, hint=FACTORS_HINT)
        steps[ids], given[ids] = wanted, True
    return steps / STEPS_PER_POWER


def _ranges(graph: Graph, node: Node) -> Array:
    """Largest |weight| for each pair of input and output channel: [inputs, outputs]."""
    sizes: Array = np.abs(weights_of(graph, node))
    return sizes if node.op == "matmul" else np.asarray(sizes.max(axis=(0, 1)))


def _factors(graph: Graph, channels: ChannelMap, biases: bool) -> Float64:
    """log2 of the factor by which each channel is divided at its producers.

    In each sweep every channel moves halfway to the point where the ranges on both sides are equal;
    a full step would overshoot, because its neighbours move as well.
    """
    log2 = np.zeros(channels.count)
    layers = [LayerRanges.of(graph, channels, node) for node in channels.layers]
    nothing = np.full(channels.count, -np.inf)
    offsets = _largest_offsets(graph, channels) if biases else nothing
    with over_chunks(len(layers)) as each:
        for _ in range(SWEEPS):
            produced, consumed = offsets - log2, nothing.copy()
            found = each(partial(LayerRanges.scaled, log2=log2), layers)
            for layer, (of_inputs, of_outputs) in zip(layers, found, strict=True):
                np.maximum.at(produced, layer.outputs, of_outputs)
                np.maximum.at(consumed, layer.inputs, of_inputs)
            both = np.isfinite(produced) & np.isfinite(consumed) & ~channels.frozen
            step = np.where(both, produced, 0) - np.where(both, consumed, 0)
            log2 = np.clip(log2 + step / 4, -MAX_LOG2, MAX_LOG2)
            if np.abs(step).max(initial=0) < 1e-3:
                break
    return log2


@dataclass(frozen=True)
class LayerRanges:
    """log2 of the largest |weight| between channels of one layer.

    inputs, outputs: channels. ranges [groups, inputs, outputs], for each group of channels; in a
    depthwise layer, each input is a group. ranges_buffer: memory with the shape of `ranges`,
    because allocating new memory would take longer than the sums.
    """

    inputs: Ids
    outputs: Ids
    ranges: Float64
    ranges_buffer: Float64

    @staticmethod
    def of(graph: Graph, channels: ChannelMap, node: Node) -> LayerRanges:
        ranges = _log2(_ranges(graph, node))
        inputs, outputs = channels.of(node.inputs[0]), channels.of(node.name)
        if node.op == "depthwise_conv2d":
            ranges = ranges[:, None]
        else:
            groups = len(inputs) // len(ranges)
            ranges = ranges.reshape(len(ranges), groups, -1).transpose(1, 0, 2)
        ranges = np.ascontiguousarray(ranges)
        return LayerRanges(inputs, outputs, ranges, np.empty_like(ranges))

    def scaled(self, log2: Float64) -> tuple[Float64, Float64]:
        """The largest of each input and of each output, with these factors."""
        groups, inputs, outputs = self.ranges.shape
        into = log2[self.inputs].reshape(groups, inputs, 1)
        out = log2[self.outputs].reshape(groups, 1, outputs)
        ranges_buffer = np.add(self.ranges, into, out=self.ranges_buffer)
        of_outputs = ranges_buffer.max(axis=1, keepdims=True) - out
        np.subtract(ranges_buffer, out, out=ranges_buffer)
        return ranges_buffer.max(axis=2).ravel(), of_outputs.ravel()


def _largest_offsets(graph: Graph, channels: ChannelMap) -> Float64:
    """log2 of the largest |bias| of each channel."""
    offsets = np.full(channels.count, -np.inf)
    for node in graph.topological():
        bias = graph.constant(node.inputs[1]) if node.op == "bias_add" else None
        if bias is not None:
            np.maximum.at(offsets, channels.of(node.name), _log2(np.abs(bias)))
    return offsets


def _log2(ranges: Array) -> Float64:
    with np.errstate(divide="ignore"):
        return np.log2(ranges.astype(np.float64))


def _scale(rewriter: Rewriter, node: Node, channels: ChannelMap, factors: Float64) -> None:
    graph = rewriter.graph
    if node in channels.layers:
        multiply, divide = factors[channels.of(node.inputs[0])], factors[channels.of(node.name)]
        factor = _weight_factor(node, weights_of(graph, node), multiply, divide)
    elif node.op == "bias_add" or (node.op == "add" and graph.constant(node.inputs[1]) is not None):
        factor = 1 / factors[channels.of(node.name)]
    elif node.op == "relu6":
        _clip_per_channel(rewriter, node, factors[channels.of(node.name)])
        return
    else:
        return
    if np.all(factor == 1):
        return
    constant = graph.constant(node.inputs[1])
    scaled = rewriter.const(times(constant, factor), f"{node.inputs[1]}/equalized")
    rewriter.put(replace(graph.nodes[node.name], inputs=(node.inputs[0], scaled)))


def _weight_factor(node: Node, weights: Array, multiply: Float64, divide: Float64) -> Float64:
    """Factor of the weights, in a shape that broadcasts."""
    if node.op == "depthwise_conv2d":
        return multiply[:, None] / divide.reshape(weights.shape[2:])
    inputs = weights.shape[-2]
    if len(multiply) == inputs:
        return multiply[:, None] / divide
    groups = len(multiply) // inputs
    per_output = np.repeat(multiply.reshape(groups, inputs).T, len(divide) // groups, axis=1)
    return per_output / divide


def _clip_per_channel(rewriter: Rewriter, node: Node, factors: Float64) -> None:
    if np.all(factors == 1):
        return
    dtype = rewriter.graph.types[node.name].dtype
    positive = rewriter.add("relu", node.inputs[0], name=f"{node.name}/relu")
    bound = rewriter.const((6 / factors).astype(dtype), f"{node.name}/six")
    rewriter.put(Node(node.name, "minimum", (positive, bound), control=node.control))
