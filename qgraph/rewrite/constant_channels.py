"""Find channels that are constant for every input, and their constants."""

from __future__ import annotations

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import OPS, op_definition
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.reading import along_channels, marks_of
from qgraph.ir.types import Array
from qgraph.rewrite.channels import flattened, is_spatial
from qgraph.rewrite.constants import Float64, Mask, channel_vector, channels_of, is_unpadded

_ELEMENTWISE = frozenset(
    {
        "bias_add",
        *(name for name, op in OPS.items() if op.elementwise and (op.integer or op.pointwise)),
    }
)


def constant_channels(graph: Graph) -> dict[str, Float64]:
    """Find the constant of each channel of each value, NaN for a channel that varies.

    A channel is a slice along the last axis. Constants pass through layers (if weights are zero, or
    if inputs are constant and there is no zero padding), elementwise ops, pools, ops that move
    positions, concats and flattening.
    """
    known: dict[str, Float64] = {}
    for node in graph.topological():
        for value in node.values:
            known[value] = np.full(channels_of(graph, value) or 0, np.nan)
        found = _constants(graph, node, known)
        if found is not None and found.shape == known[node.name].shape:
            known[node.name] = found
    return known


def _constants(graph: Graph, node: Node, known: dict[str, Float64]) -> Float64 | None:
    if marks_of(node).pool:  # averages, also as a padded sum and its reciprocals
        return known[node.inputs[0]]
    if node.op in COMPUTE:
        return _of_layer(graph, node, known[node.inputs[0]])
    if node.op in _ELEMENTWISE:
        return _elementwise(graph, node, known)
    if node.op in ("max_pool", "avg_pool"):
        return known[node.inputs[0]]
    if node.op == "concat" and along_channels(node, graph.types[node.name].rank or 0):
        return np.concatenate([known[v] for v in node.inputs])
    if node.op == "reshape":
        tiled: Float64 | None = flattened(graph, node, known[node.inputs[0]])
        return tiled
    if is_spatial(graph, node):
        inside = known[node.inputs[0]]
        return np.where(inside == 0, 0, np.nan) if node.op == "pad" else inside
    return None


def _of_layer(graph: Graph, layer: Node, inputs: Float64) -> Float64 | None:
    weights = graph.constant(layer.inputs[1])
    if weights is None or not len(inputs):
        return None
    taps, live = sum_of_taps(weights), live_pairs(weights)
    wild = np.isnan(inputs)
    if not is_unpadded(graph, layer):
        wild |= inputs != 0
    constants = np.where(wild, 0, inputs)
    if layer.op == "depthwise_conv2d":
        found = np.where(live & wild[:, None], np.nan, constants[:, None] * taps)
        return found.reshape(-1)
    if len(inputs) != len(taps):  # groups
        return None
    return np.where((live & wild[:, None]).any(axis=0), np.nan, constants @ taps)


def sum_of_taps(weights: Array) -> Float64:
    """The sum over the window, [inputs, outputs or multiplier]."""
    return np.asarray(weights.sum(axis=tuple(range(weights.ndim - 2)), dtype=np.float64))


def live_pairs(weights: Array) -> Mask:
    """Mask of the pairs of channels with a nonzero weight."""
    return np.asarray((weights != 0).any(axis=tuple(range(weights.ndim - 2))))


def _elementwise(graph: Graph, node: Node, known: dict[str, Float64]) -> Float64 | None:
    channels = channels_of(graph, node.name)
    inputs = []
    for value in node.inputs:
        vector = channel_vector(graph, value, channels)
        inputs.append(known[value] if vector is None else vector.astype(np.float64))
    if any(len(vector) != channels for vector in inputs):
        return None
    evaluate = op_definition(node.op).evaluate
    if evaluate is None:
        return None
    # A comparison inside a function would turn NaN into a number.
    varies = np.isnan(inputs).any(axis=0)
    return np.where(varies, np.nan, evaluate(node.attributes, inputs))
