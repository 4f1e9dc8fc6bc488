"""Move the bias of a sum of layers into one of these layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import marks_of
from qgraph.passes import RewritePass
from qgraph.rewrite.constants import channel_vector, channels_of, is_layer, only_user
from qgraph.rewrite.layers import add_to_bias
from qgraph.rewrite.masks import leaves_no_share
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class MoveBiases(RewritePass):
    """`(x W + h U) + b` becomes `(x W + b) + h U`, as in the gates of an LSTM.

    A layer adds its bias to its accumulator. Behind a sum of layers, the bias is added to codes of
    the sum, which then need more bits. Refusals: the sum, or each of its layers, has other users.
    """

    name: ClassVar[str] = "move-biases"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("move", ("bias_add", "add"), _move),)


def _move(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    for total, other in (node.inputs, node.inputs[::-1]):
        bias = channel_vector(graph, other, channels_of(graph, total))
        if bias is None or leaves_no_share(bias) or graph.producer(total).op not in ("add", "sub"):
            continue
        path = _path_to_layer(graph, total)
        if not path:
            return rewriter.refuse(node, f"no layer of the sum `{total}` is used by it alone")
        if graph.types[total] != graph.types[node.name]:
            return rewriter.refuse(node, f"adding `{other}` widens `{total}`, so it is not a bias")
        if node.control or graph.control_users(node.name):
            return rewriter.refuse(node, "it has control edges")
        shift = bias.astype(np.float64)
        for value in path[:-1]:
            if value in graph.moments:
                graph.moments[value] = graph.moments[value].shifted(shift)
        if node.name in graph.moments:
            graph.moments[total] = graph.moments[node.name]
        add_to_bias(rewriter, graph.producer(path[-1]), shift)
        return rewriter.replace_value(node.name, total)
    return False


def _path_to_layer(graph: Graph, value: str) -> list[str]:
    """The values from a sum back to a layer whose bias can change, each with one user only."""
    node = graph.producer(value)
    if only_user(graph, value) is None:
        return []
    if is_layer(node) and graph.constant(node.inputs[1]) is not None:
        return [value] if marks_of(node).grid is None else []
    if node.op == "bias_add" and graph.constant(node.inputs[1]) is not None:
        path = _path_to_layer(graph, node.inputs[0])
        return [value, *path] if len(path) == 1 else []
    for term in node.inputs[: {"add": 2, "sub": 1}.get(node.op, 0)]:
        path = _path_to_layer(graph, term)
        if path and graph.types[term] == graph.types[value]:
            return [value, *path]
    return []
