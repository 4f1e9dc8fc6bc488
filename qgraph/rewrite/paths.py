"""Follow a value up to the layer whose channels it has, through moves and slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import GraphError
from qgraph.interpret import run_node
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Shape
from qgraph.rewrite.channels import Ids
from qgraph.rewrite.constants import Mask, is_layer

MOVES = ("transpose", "reshape", "squeeze", "expand_dims", "identity", "slice")
MAX_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class LayerChannels:
    """Channels of a layer, [output channels], that one value has, and nothing else uses."""

    layer: Node
    bias: Node | None
    chosen: Mask


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


def _channel_ids(graph: Graph, value: str, later: Sequence[str]) -> Ids | None:
    """The channel of each element of `value`, for a batch of 1."""
    shape = graph.types[value].shape
    if not shape or shape[-1] is None or None in shape[1:]:
        return None
    elements = math.prod(_of_one(shape))
    for name in later:  # a layer on rows has as many of them as its reshape needs
        after = graph.types[name].shape
        if after is None:
            return None
        if graph.nodes[name].op == "slice":
            break
        elements = max(elements, math.prod(_of_one(after)))
    rows, odd = divmod(elements, math.prod(_of_one(shape[1:])))
    sizes = (rows if shape[0] is None else shape[0], *_of_one(shape[1:]))
    if odd or elements > MAX_ELEMENTS:
        return None
    return np.broadcast_to(np.arange(sizes[-1]), sizes)


def _of_one(shape: Shape) -> tuple[int, ...]:
    return tuple(1 if size is None else size for size in shape)


def _followed(ids: Ids, chain: Sequence[Node]) -> Ids | None:
    for node in chain:
        moved = _moved(ids, node)
        if moved is None:
            return None
        ids = moved
    return ids


def _moved(ids: Ids, node: Node) -> Ids | None:
    try:
        return run_node(node, [ids])[0]
    except GraphError:  # a batch of 1 does not fit
        return None


def _is_shared(graph: Graph, value: str, ids: Ids, chosen: Mask, known: tuple[str, Node]) -> bool:
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
