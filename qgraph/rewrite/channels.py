"""Identify channels of different values that must share a positive factor.

Each output channel of a layer is a new channel. Ops that commute with a positive factor (ReLU,
pools, padding with zeros) keep it; sums unite channels; a concat puts them side by side.
If any other op reads or computes a value, its channels are frozen: their factor stays 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.attributes import AxesAttrs
from qgraph.ir.ops.movement import PartAttrs
from qgraph.ir.reading import along_channels, marks_of, padding_value
from qgraph.ops.movement import TakeAttrs
from qgraph.rewrite.constants import is_layer, leaky_product

Ids = npt.NDArray[np.int64]

_SAME = frozenset({"relu", "relu6", "max_pool", "avg_pool", "identity", "bias_add"})
_SPATIAL = frozenset({"mean", "reduce_max", "squeeze", "resize_nearest", "slice", "pad", "take"})


@dataclass(frozen=True)
class ChannelMap:
    """Channels by number: `of(value)` [channels of the value], `frozen` [count]."""

    layers: tuple[Node, ...]
    ids: dict[str, Ids]
    roots: Ids
    frozen: npt.NDArray[np.bool_]

    @property
    def count(self) -> int:
        return len(self.roots)

    def of(self, value: str) -> Ids:
        found: Ids = self.roots[self.ids[value]]
        return found


class ChannelUnion:
    """Union-find over channel numbers."""

    def __init__(self) -> None:
        self.parents: list[int] = []

    def new(self, count: int) -> Ids:
        start = len(self.parents)
        self.parents.extend(range(start, start + count))
        return np.arange(start, start + count)

    def root(self, channel: int) -> int:
        while self.parents[channel] != channel:
            self.parents[channel] = self.parents[self.parents[channel]]
            channel = self.parents[channel]
        return channel

    def join(self, a: Ids, b: Ids) -> None:
        for x, y in zip(a.tolist(), b.tolist(), strict=True):
            self.parents[self.root(y)] = self.root(x)


def channel_map(graph: Graph, also: frozenset[str] = frozenset()) -> ChannelMap:
    """The channels of every float value of a folded graph.

    also: further ops that keep channels separate, for callers that do not scale channels.
    """
    union = ChannelUnion()
    ids: dict[str, Ids] = {}
    frozen: list[Ids] = []
    layers: list[Node] = []
    leaky = {
        product: x
        for node in graph.topological()
        for x, product in [leaky_product(graph, node) or ("", "")]
        if product
    }
    for node in graph.topological():
        found = ids[node.inputs[0]] if node.op in also else None
        found = _through(graph, node, ids, union, leaky) if found is None else found
        if found is None:
            frozen += [ids[v] for v in node.inputs if v in ids]
            for value in node.values:
                ids[value] = union.new(_channels(graph, value))
                frozen.append(ids[value])
        else:
            ids[node.name] = found
        if is_layer(node) and found is not None:
            layers.append(node)
    frozen += [ids[v] for v in graph.outputs.values()]
    roots = np.array([union.root(i) for i in range(len(union.parents))], np.int64)
    stuck = np.zeros(len(roots), bool)
    for part in frozen:
        stuck[roots[part]] = True
    return ChannelMap(tuple(layers), ids, roots, stuck)


def _channels(graph: Graph, value: str) -> int:
    shape = graph.types[value].shape
    return int(shape[-1] or 0) if shape else 0


def _through(
    graph: Graph, node: Node, ids: dict[str, Ids], union: ChannelUnion, leaky: dict[str, str]
) -> Ids | None:
    """The channels of the node's output; None if the node does not commute with factors."""
    if node.op in ("input", "const") or not _channels(graph, node.name):
        return None
    x = ids[node.inputs[0]] if node.inputs else None
    if is_layer(node) and graph.constant(node.inputs[1]) is not None:
        if graph.use_count(node.inputs[1]) > 1:
            return None  # factors would make the shared weights of several layers different
        return union.new(_channels(graph, node.name))
    if marks_of(node).pool or node.op in _SAME or is_spatial(graph, node):
        return x
    if node.name in leaky:
        return ids[leaky[node.name]]
    if node.op == "concat" and along_channels(node, graph.types[node.name].rank or 0):
        return np.concatenate([ids[v] for v in node.inputs])
    if node.op == "reshape":
        tiled: Ids | None = flattened(graph, node, x)
        return tiled
    if node.op in ("add", "sub", "maximum"):
        return _joined(graph, node, ids, union)
    return None


def is_spatial(graph: Graph, node: Node) -> bool:
    """Whether an op moves or averages positions and keeps the last axis."""
    if node.op not in _SPATIAL or padding_value(node):
        return False
    before, after = graph.types[node.inputs[0]], graph.types[node.name]
    if node.op in ("mean", "reduce_max", "squeeze"):
        rank, axes = before.rank, node.typed(AxesAttrs).axes
        return rank is not None and all(axis % rank != rank - 1 for axis in axes)
    if node.op == "take":
        return node.typed(TakeAttrs).axis != (before.rank or 0) - 1
    whole = node.op != "slice" or node.typed(PartAttrs).strides[-1] in (None, 1)
    sizes = [t.shape[-1] for t in (before, after) if t.shape]
    return whole and len(sizes) == 2 and sizes[0] == sizes[1]


def flattened(graph: Graph, node: Node, channels: Any) -> Any:
    """Repeat an array over channels for each position: [n, h, w, c] -> [n, h * w * c].

    None if the reshape is of another kind.
    """
    before, after = graph.types[node.inputs[0]].shape, graph.types[node.name].shape
    if before is None or after is None or len(after) != 2 or before[0] != after[0]:
        return None
    return np.tile(channels, (after[1] or 0) // len(channels)) if len(channels) else None


def _joined(graph: Graph, node: Node, ids: dict[str, Ids], union: ChannelUnion) -> Ids | None:
    a, b = node.inputs
    if graph.types[a].shape is None or _channels(graph, a) != _channels(graph, b):
        return None
    constants = [graph.constant(v) is not None for v in (a, b)]
    if any(constants):
        # An added vector is scaled with the layer; other constants do not change.
        is_vector = node.op == "add" and constants == [False, True]
        is_vector = is_vector and graph.types[b].shape == (_channels(graph, a),)
        return ids[a] if is_vector else None
    union.join(ids[a], ids[b])
    return ids[a]
