"""Follow a value up to the layer whose channels it has, through moves and slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from qgraph.errors import GraphError
from qgraph.interpret import run_node
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.movement import TargetAttrs
from qgraph.ir.types import Array, Shape
from qgraph.rewrite.constants import Mask, is_layer, only_user
from qgraph.rewrite.elementwise import BINARY, CHANNELWISE, UNARY

MOVES = ("transpose", "reshape", "squeeze", "expand_dims", "identity", "slice")
BLOCKS = ("depth_to_space", "space_to_depth")
CHOICES = ("slice", "take", "resize_nearest")  # of elements; the others keep all of them
MAX_ELEMENTS = 1 << 24
ChannelIds = npt.NDArray[np.int32]


@dataclass(frozen=True)
class LayerChannels:
    """Channels of a layer, [output channels], that one value has, and nothing else uses."""

    layer: Node
    bias: Node | None
    chosen: Mask


@dataclass(frozen=True)
class MovedChannels:
    """The channel of `source` that each element of a moved value is, for a batch of 1.

    moves: from `source` to the value. None of these values has another user. share: of the elements
    of `source`, those that the value has.
    """

    source: str
    moves: tuple[Node, ...]
    ids: ChannelIds
    count: int
    share: float

    def vector(self, constant: Array) -> Array | None:
        """A constant that fits the moved value, as one number for each channel of `source`.

        None if a channel meets several numbers. A channel that the moves leave out gets any number.
        """
        try:
            wide = np.broadcast_to(constant, self.ids.shape)
        except ValueError:  # it has an axis for the samples
            return None
        vector = np.full(self.count, wide.flat[0])
        vector[self.ids] = wide
        return vector if bool((vector[self.ids] == wide).all()) else None


def moved_channels(graph: Graph, value: str) -> MovedChannels | str | None:
    """The channels of a layer that `value` has behind moves, or the reason why that is unknown.

    Elementwise ops with constants may lie between the layer and the moves. Returns None without
    such a layer, or if the moves only change the layout or join axes: other passes sink these.
    """
    chain: list[Node] = []
    node = graph.producer(value)
    while node.op in (*MOVES, *BLOCKS, *CHOICES, "pad"):
        chain.insert(0, node)
        node = graph.producer(node.inputs[0])
    if not _arranges(chain) or not _is_of_layer(graph, node):
        return None
    for step in (node, *chain):
        if only_user(graph, step.name) is None:
            return f"`{step.name}` has other users"
    for before, step in pairwise((node, *chain)):
        if step.op == "pad":
            return f"`{step.name}` pads a layer's result with other numbers"
        if not _repeats_for_samples(step, graph.types[before.name].shape):
            return f"`{step.name}` mixes samples, or their sizes are open"
    names = [step.name for step in chain]
    most = max(math.prod(_of_one(graph.types[name].shape or ())) for name in names)
    ids = _channel_ids(graph, node.name, names) if most <= MAX_ELEMENTS else None
    found = None if ids is None else _followed(ids, chain)
    if ids is None or found is None or not found.size:
        return f"the sizes of `{node.name}` are open, empty or too large"
    return MovedChannels(node.name, tuple(chain), found, ids.shape[-1], found.size / ids.size)


def _arranges(chain: Sequence[Node]) -> bool:
    """Whether moves do more than change the layout, which is left to passes of its own."""
    kinds = [step.op for step in chain]
    return kinds.count("reshape") > 1 or not {*kinds}.isdisjoint((*BLOCKS, *CHOICES))


def _is_of_layer(graph: Graph, node: Node) -> bool:
    """Whether a node is a layer with constant weights, or an elementwise op on one."""
    while node.op in (*UNARY, *CHANNELWISE, *BINARY):
        data = [v for v in node.inputs if graph.constant(v) is None]
        if len(data) != 1:
            return False
        node = graph.producer(data[0])
    return is_layer(node) and graph.constant(node.inputs[1]) is not None


def _repeats_for_samples(move: Node, shape: Shape | None) -> bool:
    """Whether further samples only repeat the channels of one sample, along the first axis."""
    if shape is None or None not in shape:
        return shape is not None
    if isinstance(move.attributes, TargetAttrs):
        target = move.attributes.shape
        return shape.index(None) == 0 and target[:1] == (-1,) and -1 not in target[1:]
    return op_definition(move.op).keeps_samples(move.attributes, shape)


def channels_behind(graph: Graph, value: str, user: Node) -> LayerChannels | None:
    """The channels of a layer that `value` consists of, if only `user` takes them.

    Each row repeats the value of its channel. Returns None if the value comes from another op.
    """
    chain: list[Node] = []
    node = graph.producer(value)
    while node.op in MOVES:
        chain.insert(0, node)
        node = graph.producer(node.inputs[0])
    bias = node if node.op == "bias_add" else None
    layer = graph.producer(bias.inputs[0]) if bias is not None else node
    if not is_layer(layer) or (bias is not None and graph.use_count(layer.name) > 1):
        return None
    ids = _channel_ids(graph, node.name, [step.name for step in chain])
    found = None if ids is None else _followed(ids, chain)
    if ids is None or found is None:
        return None
    chosen = np.zeros(ids.shape[-1], bool)
    chosen[found] = True
    if found.size != ids[..., chosen].size or _is_shared(
        graph, node.name, ids, chosen, (value, user)
    ):
        return None
    return LayerChannels(layer, bias, chosen)


def _channel_ids(graph: Graph, value: str, later: Sequence[str]) -> ChannelIds | None:
    """The channel of each element of `value`, for a batch of 1."""
    shape = graph.types[value].shape
    if not shape or shape[-1] is None or None in shape[1:]:
        return None
    elements = math.prod(_of_one(shape))
    for name in later:  # a layer on rows has as many of them as its reshape needs
        after = graph.types[name].shape
        if after is None:
            return None
        if graph.nodes[name].op in CHOICES:
            break
        elements = max(elements, math.prod(_of_one(after)))
    rows, odd = divmod(elements, math.prod(_of_one(shape[1:])))
    sizes = (rows if shape[0] is None else shape[0], *_of_one(shape[1:]))
    if odd or elements > MAX_ELEMENTS:
        return None
    return np.broadcast_to(np.arange(sizes[-1], dtype=np.int32), sizes)


def _of_one(shape: Shape) -> tuple[int, ...]:
    return tuple(1 if size is None else size for size in shape)


def _followed(ids: ChannelIds, chain: Sequence[Node]) -> ChannelIds | None:
    for node in chain:
        moved = _moved(ids, node)
        if moved is None:
            return None
        ids = moved
    return ids


def _moved(ids: ChannelIds, node: Node) -> ChannelIds | None:
    try:
        return run_node(node, [ids])[0]
    except GraphError:  # a batch of 1 does not fit
        return None


def _is_shared(
    graph: Graph, value: str, ids: ChannelIds, chosen: Mask, known: tuple[str, Node]
) -> bool:
    """Whether an output takes one of the chosen channels, or a node, except of a `known` value."""
    if not chosen[ids].any():
        return False
    if graph.is_output(value):
        return True
    for taker in graph.users(value):
        if (value, taker.name) == (known[0], known[1].name) and taker.inputs.count(value) == 1:
            continue
        moved = _moved(ids, taker) if taker.op in MOVES else None
        if moved is None or _is_shared(graph, taker.name, moved, chosen, known):
            return True
    return False
