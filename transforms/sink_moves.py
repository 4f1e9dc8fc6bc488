"""Keep the bias, the batch norm and the activation of a layer next to it, before moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array
from qgraph.passes import RewritePass
from qgraph.rewrite.elementwise import BINARY, CHANNELWISE, UNARY
from qgraph.rewrite.masks import leaves_no_share, masked_scores, softmaxes_of
from qgraph.rewrite.paths import MovedChannels, moved_channels
from qgraph.rewrite.rewriter import Rewriter, Rule

ACTIVATIONS = tuple(op for op in UNARY if op not in ("cast", "identity", "quantize"))


@dataclass(frozen=True)
class SinkMoves(RewritePass):
    """Move blocks, slices and other moves of a layer's result below what belongs to the layer.

    A transposed convolution is a convolution whose channels are then arranged in space. This would
    separate it from its bias, its batch norm and its activation. Constants are taken back to the
    channels of the layer. Activations stay where moves leave out half of the elements. Refusals: a
    value in between has other users; zeros around it; a constant that differs within a channel;
    moves that mix samples; open sizes.
    """

    name: ClassVar[str] = "sink-moves"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("activation", ACTIVATIONS, _activation),
            Rule("constants", (*CHANNELWISE, *BINARY), _constants),
        )


def _moved(graph: Graph, node: Node, value: str) -> MovedChannels | str | None:
    """The layer's channels behind the moves to `value`, if `node` keeps its type."""
    kept = graph.types[value] == graph.types[node.name] and graph.types[value].is_float
    return moved_channels(graph, value) if kept else None


def _activation(rewriter: Rewriter, node: Node) -> bool:
    found = _moved(rewriter.graph, node, node.inputs[0])
    if not isinstance(found, MovedChannels) or found.share <= 1 / 2:
        return False
    return _sink(rewriter, node, found, (found.source,))


def _constants(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    constants = [graph.constant(value) for value in node.inputs]
    data = [v for v, constant in zip(node.inputs, constants, strict=True) if constant is None]
    found = _moved(graph, node, data[0]) if len(data) == 1 else None
    if not isinstance(found, MovedChannels):
        return bool(found) and rewriter.refuse(node, str(found))
    vectors: dict[str, Array] = {}
    for value, constant in zip(node.inputs, constants, strict=True):
        if constant is None:
            continue
        vector = found.vector(constant)
        if vector is None:
            return rewriter.refuse(node, f"`{value}` differs within a channel of `{found.source}`")
        if leaves_no_share(vector) and masked_scores(graph, node, softmaxes_of(graph)):
            return rewriter.refuse(node, f"`{value}` masks a softmax")
        one = constant.size == 1 and node.op not in CHANNELWISE
        vectors[value] = constant.reshape(()) if one else vector
    inputs = [
        rewriter.const(vectors[v], f"{v}/channels") if v in vectors else found.source
        for v in node.inputs
    ]
    return _sink(rewriter, node, found, inputs)


def _sink(rewriter: Rewriter, node: Node, found: MovedChannels, inputs: Sequence[str]) -> bool:
    """`node` becomes the last of the moves, which begin with itself on `inputs`."""
    made = rewriter.add(node.op, *inputs, name=f"{node.name}/unmoved", attrs=node.attrs)
    *moves, last = found.moves
    for move in moves:
        made = rewriter.add(move.op, made, name=f"{node.name}/{move.op}", attrs=move.attrs)
    return rewriter.put(Node(node.name, last.op, (made,), last.attrs, node.control))
