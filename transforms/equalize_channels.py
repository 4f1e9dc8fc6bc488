"""Cross-layer equalisation: give the channels of every layer's weights comparable ranges.

A channel between two layers may be scaled freely if the second layer undoes it: ReLU, pools,
sums and concats commute with a positive factor. Per-tensor scales lose precision in channels of
small range, so factors are chosen that make the ranges of a channel's producers and consumers equal
(Nagel et al., 2019, "Data-Free Quantization", section 4.1, here over whole groups of layers).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array
from qgraph.passes import Pass, option
from qgraph.quant.noise_balance import noise_factors
from qgraph.rewrite.channels import ChannelMap, channel_map
from qgraph.rewrite.constants import Float64, times, weights_of
from qgraph.rewrite.rewriter import Rewriter

SWEEPS = 40
# Beyond 2^12 a channel's numbers are negligible next to the others, and a factor gains nothing.
LARGEST_LOG2 = 12.0


@dataclass(frozen=True)
class EqualizeChannels(Pass):
    """Scale channels between layers so that their weights' ranges meet. Keeps the function.

    ReLU6 becomes ReLU and a clip of 6 / factor per channel. With `biases` a channel's range
    includes its bias: a channel of tiny weights may have a large constant value, which, scaled up,
    would dominate the range of the whole activation. With `powers_of_two` factors are rounded to
    powers of two, which makes the rewrite exact in floating point. With `noise` ranges need not
    meet: factors minimize the noise that 8 bits make, by what batch norms remember, and channels
    without a batch norm stay.
    """

    biases: bool = option("Include biases in the range of a channel.", default=True)
    powers_of_two: bool = option("Round factors to powers of two.", default=False)
    noise: bool = option("Minimize noise instead of making ranges equal.", default=False)
    name: ClassVar[str] = "equalize-channels"
    requires: ClassVar[frozenset[str]] = frozenset({"batch-norm-folded"})

    def apply(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        channels = channel_map(graph)
        if self.noise:
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
    layers = [(node, _log2(_ranges(graph, node))) for node in channels.layers]
    nothing = np.full(channels.count, -np.inf)
    offsets = _largest_offsets(graph, channels) if biases else nothing
    for _ in range(SWEEPS):
        produced = offsets - log2
        consumed = np.full(channels.count, -np.inf)
        for node, ranges in layers:
            inputs, outputs = channels.of(node.inputs[0]), channels.of(node.name)
            if node.op == "depthwise_conv2d":
                per_input = inputs[:, None]
                scaled = ranges + log2[per_input] - log2[outputs.reshape(ranges.shape)]
                np.maximum.at(produced, outputs.reshape(ranges.shape), scaled)
                np.maximum.at(consumed, np.broadcast_to(per_input, ranges.shape), scaled)
                continue
            groups = len(inputs) // len(ranges)
            columns = np.array_split(np.arange(len(outputs)), groups)
            for part, column in zip(np.split(inputs, groups), columns, strict=True):
                scaled = ranges[:, column] + log2[part][:, None] - log2[outputs[column]]
                np.maximum.at(produced, outputs[column], scaled.max(axis=0))
                np.maximum.at(consumed, part, scaled.max(axis=1))
        both = np.isfinite(produced) & np.isfinite(consumed) & ~channels.frozen
        step = np.where(both, produced, 0) - np.where(both, consumed, 0)
        log2 = np.clip(log2 + step / 4, -LARGEST_LOG2, LARGEST_LOG2)
        if np.abs(step).max(initial=0) < 1e-3:
            break
    return log2


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
