"""Find channels that can be removed without changing results, if their constants are kept."""

from __future__ import annotations

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.composed import TABLES
from qgraph.rewrite.channels import ChannelMap, Ids, channel_map
from qgraph.rewrite.constant_channels import constant_channels, live_pairs
from qgraph.rewrite.constants import Float64, Mask, is_unpadded, weights_of


class RemovableChannels:
    """Channels that are constant or unused, and the layers that prevent their removal.

    `removable` marks the roots of `channels` that can be removed together. Every layer keeps at
    least one channel. If several constants other than 0 reach a border with zero padding, the
    largest one is kept. `grouped` names the layer with groups that prevents the removal of a root.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.channels: ChannelMap = channel_map(graph, frozenset(TABLES))
        self.known = constant_channels(graph)
        self.removable = (_constant(self.channels, self.known) | ~_read(graph, self.channels)) & (
            _made_by_layers(self.channels) & ~self.channels.frozen
        )
        self.grouped: dict[int, str] = {
            root: layer.name
            for layer in self.channels.layers
            if groups(graph, layer) > 1
            for value in (layer.inputs[0], layer.name)
            for root in self.channels.of(value).tolist()
        }
        self._keep([*self.grouped])
        self._settle()
        for layer in self.channels.layers:
            outputs = self.channels.of(layer.name)
            if self.removable[outputs].all():
                self._keep(outputs[:1])
                self._settle()

    def kept(self, value: str) -> Mask:
        """Mask of the channels of `value` that stay."""
        return ~self.removable[self.channels.of(value)]

    def constants(self, value: str) -> Float64:
        """The constants of a value's channels, 0 where it varies."""
        return np.nan_to_num(self.known[value])

    def dropped(self, layer: Node) -> Float64:
        """The constants of removed input channels of the layer, 0 for all other input channels."""
        read = live_pairs(weights_of(self.graph, layer)).any(axis=1)
        value = layer.inputs[0]
        return np.where(read & ~self.kept(value), self.constants(value), 0)

    def _keep(self, roots: Ids | list[int]) -> None:
        self.removable[roots] = False

    def _settle(self) -> None:
        left = -1
        while left != (left := int(self.removable.sum())):
            for layer in self.channels.layers:
                self._couple(layer)
                self._carry(layer)

    def _couple(self, layer: Node) -> None:
        """Remove a channel of a depthwise layer on both sides or not at all."""
        if layer.op == "depthwise_conv2d":
            inputs = self.channels.of(layer.inputs[0])
            outputs = self.channels.of(layer.name).reshape(len(inputs), -1)
            stays = ~(self.removable[inputs] & self.removable[outputs].all(axis=1))
            self._keep(inputs[stays])
            self._keep(outputs[stays])

    def _carry(self, layer: Node) -> None:
        if layer.op != "conv2d" or groups(self.graph, layer) > 1 or is_unpadded(self.graph, layer):
            return
        value, dropped = layer.inputs[0], np.abs(self.dropped(layer))
        staying = np.where(self.kept(value), np.abs(self.constants(value)), 0)
        if dropped.any() and staying.max() < dropped.max():
            self._keep(self.channels.of(value)[dropped.argmax()])


def _constant(channels: ChannelMap, known: dict[str, Float64]) -> Mask:
    """Roots that are constant in every value in which they occur."""
    constant = np.ones(channels.count, bool)
    for value in channels.ids:
        constant[channels.of(value)[np.isnan(known[value])]] = False
    return constant


def _read(graph: Graph, channels: ChannelMap) -> Mask:
    """Roots for which a layer has a nonzero weight."""
    read = np.zeros(channels.count, bool)
    for layer in channels.layers:
        inputs = channels.of(layer.inputs[0])
        live = live_pairs(weights_of(graph, layer)).any(axis=1)
        read[inputs[np.resize(live, len(inputs))]] = True
    return read


def _made_by_layers(channels: ChannelMap) -> Mask:
    made = np.zeros(channels.count, bool)
    for layer in channels.layers:
        made[channels.of(layer.name)] = True
    return made


def groups(graph: Graph, layer: Node) -> int:
    """The number of groups of input channels of a conv2d; 1 for other layers."""
    inputs, weights = (graph.types[v].shape or (1,) for v in layer.inputs)
    alone = layer.op != "conv2d" or inputs[-1] is None
    return 1 if alone else int(inputs[-1] or 1) // int(weights[2] or 1)
