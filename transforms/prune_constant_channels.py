"""Remove constant channels from the layers that produce them and from those that read them.

A channel whose weights are all zero is `activation(bias)` everywhere. Its contribution to the next
layer is a constant too, which moves into that layer's bias; then the channel is unused. At the
border of a convolution with zero padding, the contribution is not constant. But all constant
channels have the same border: they are merged into one with weights `sum_k (c_k / c) W_k`, where c
is its constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.ops.movement import TargetAttrs
from qgraph.ir.types import Array
from qgraph.passes import Pass
from qgraph.rewrite.constant_channels import sum_of_taps
from qgraph.rewrite.constants import Float64, Mask, is_unpadded, weights_of
from qgraph.rewrite.layers import add_to_bias
from qgraph.rewrite.removable import RemovableChannels
from qgraph.rewrite.rewriter import Rewriter


@dataclass(frozen=True)
class PruneConstantChannels(Pass):
    """Remove channels that are constant or unused. Keeps the function.

    Layers become smaller. Constants are followed through biases, ReLU, ReLU6, leaky ReLU, pools,
    sums, concats and flattening into conv2d and matmul; a depthwise layer loses a channel on both
    sides. Every layer keeps at least one channel. Refusals: a channel that another op reads or
    produces; groups; a constant other than 0 as the input of a depthwise layer that pads.
    """

    name: ClassVar[str] = "prune-constant-channels"
    requires: ClassVar[frozenset[str]] = frozenset({"batch-norm-folded"})

    def apply(self, rewriter: Rewriter) -> None:
        rewriter.rule = "prune"
        while (state := RemovableChannels(rewriter.graph)).removable.any():
            _apply(rewriter, state)
        _refuse(rewriter, state)


# -- removing channels -------------------------------------------------------------------------


def _apply(rewriter: Rewriter, state: RemovableChannels) -> None:
    graph, changed, offsets = rewriter.graph, [], {}
    for node in graph.topological():
        if not node.inputs or node.name not in state.channels.ids:
            continue
        kept = [state.kept(value) for value in (node.inputs[0], node.name)]
        if all(mask.all() for mask in kept):
            continue
        if node.op in COMPUTE:
            weights, offset = _smaller(state, node, *kept)
            offsets[node.name] = offset
            made = rewriter.const(weights, f"{node.name}/weights")
            after = replace(node, inputs=(node.inputs[0], made))
            rewriter.log(node, _removed_text(*kept))
        else:
            after = _sliced(rewriter, node, kept[1])
        changed.append((node, after))
    graph.replace_all(after for _, after in changed)
    for value, known in graph.moments.items():
        if value in state.channels.ids:
            graph.moments[value] = known.of_channels(state.kept(value))
    for old, _ in changed:
        for value in old.inputs:
            rewriter.prune(value)
    for name, offset in offsets.items():
        if offset.any():
            add_to_bias(rewriter, graph.nodes[name], offset)


def _smaller(
    state: RemovableChannels, layer: Node, kept_in: Mask, kept_out: Mask
) -> tuple[Array, Float64]:
    """Weights without the removed channels, and their contribution to each output."""
    graph = state.graph
    weights = weights_of(graph, layer)
    if layer.op == "depthwise_conv2d":
        return weights[:, :, kept_in], np.zeros(1)
    dropped, offset = state.dropped(layer), np.zeros(weights.shape[-1])
    if is_unpadded(graph, layer):
        offset = dropped @ sum_of_taps(weights)
    elif dropped.any():
        constants = np.where(kept_in, state.constants(layer.inputs[0]), 0)
        carrier = int(np.abs(constants).argmax())
        weights = weights.copy()
        share = dropped / constants[carrier]
        weights[:, :, carrier] += np.einsum("hwio,i->hwo", weights, share)
    return weights[..., kept_in, :][..., kept_out], offset[kept_out]


def _removed_text(kept_in: Mask, kept_out: Mask) -> str:
    parts = [
        f"{int((~kept).sum())} of {kept.size} {side} channels removed"
        for kept, side in ((kept_in, "input"), (kept_out, "output"))
        if not kept.all()
    ]
    return ", ".join(parts)


def _sliced(rewriter: Rewriter, node: Node, kept: Mask) -> Node:
    """A node without weights, for fewer channels."""
    graph, inputs = rewriter.graph, list(node.inputs)
    for i, value in enumerate(inputs):
        array = graph.constant(value)
        if array is not None and array.ndim and array.shape[-1] == kept.size > 1:
            inputs[i] = rewriter.const(array[..., kept], f"{node.name}/kept")
    attrs = node.attrs
    target = node.attributes
    if isinstance(target, TargetAttrs) and target.shape[-1] != -1:
        attrs = {**attrs, "shape": (*target.shape[:-1], int(kept.sum()))}
    return replace(node, inputs=tuple(inputs), attrs=attrs)


# -- what stays, and why ----------------------------------------------------------------------


def _refuse(rewriter: Rewriter, state: RemovableChannels) -> None:
    graph, channels = state.graph, state.channels
    for layer in channels.layers:
        roots = channels.of(layer.name)[~np.isnan(state.known[layer.name])].tolist()
        held = {root for root in roots if channels.frozen[root] or root in state.grouped}
        padded = layer.op == "depthwise_conv2d" and not is_unpadded(graph, layer)
        steps = int((state.constants(layer.inputs[0]) != 0).sum()) if padded else 0
        if held:
            reason = next(_holders(state, held), "they are joined with values of other ops")
            rewriter.refuse(layer, f"{len(held)} constant channels stay: {reason}")
        elif steps:
            reason = "they are not 0, so the zero padding makes them vary at the border"
            rewriter.refuse(layer, f"{steps} constant inputs stay: {reason}")


def _holders(state: RemovableChannels, roots: set[int]) -> Iterator[str]:
    """Reasons: nodes with groups, and other users of `roots` that do not pass them on."""
    graph, channels = state.graph, state.channels
    yield from (f"`{state.grouped[root]}` has groups" for root in roots & state.grouped.keys())
    for node in graph.topological():
        handed = set(channels.of(node.name).tolist())
        for value in () if node in channels.layers else node.inputs:
            if roots.intersection(channels.of(value).tolist()) - handed:
                yield f"`{node.name}` ({node.op}) needs them"
    for public, value in graph.outputs.items():
        if roots.intersection(channels.of(value).tolist()):
            yield f"they are in output `{public}`"
