"""Keep the bias and the activation of a layer next to the layer, before its rows are reshaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Shape
from qgraph.passes import RewritePass
from qgraph.rewrite.constants import is_layer
from qgraph.rewrite.elementwise import BINARY, CHANNELWISE, UNARY
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class SinkReshapes(RewritePass):
    """Move each reshape of a layer's result below the elementwise ops after it.

    A dense layer on a batch of rows, as in attention, is a product of two matrices between two
    reshapes, which would separate the layer from its bias and its activation. An added or
    multiplied constant may vary along the channels only, also where the reshape splits them into
    heads. Reshapes move in one direction, so it ends; two that meet become one, or cancel.
    """

    name: ClassVar[str] = "sink-reshapes"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("unary", UNARY, _unary),
            Rule("channels", CHANNELWISE, _channelwise),
            Rule("binary", BINARY, _binary),
            Rule("merge", ("reshape",), _merge),
        )


def _reshaped(graph: Graph, value: str) -> str | None:
    """The result of a layer that `value` is a reshape of, up to elementwise ops."""
    node = graph.producer(value)
    if node.op != "reshape":
        return None
    layer = graph.producer(node.inputs[0])
    while layer.op in (*UNARY, *CHANNELWISE, *BINARY):
        data = [v for v in layer.inputs if graph.constant(v) is None]
        if not data:
            return None
        layer = graph.producer(data[0])
    return node.inputs[0] if is_layer(layer) else None


def _sink(rewriter: Rewriter, node: Node, reshaped: str, inputs: Sequence[str]) -> bool:
    """`node` becomes a reshape, like that of `reshaped`, of itself on `inputs`."""
    name, attrs = f"{node.name}/rows", rewriter.graph.producer(reshaped).attrs
    inner = rewriter.add(node.op, *inputs, name=name, attrs=node.attrs)
    return rewriter.put(Node(node.name, "reshape", (inner,), attrs, node.control))


def _keeps_shape(graph: Graph, node: Node, value: str) -> bool:
    return graph.types[node.name].shape == graph.types[value].shape


def _unary(rewriter: Rewriter, node: Node) -> bool:
    graph, x = rewriter.graph, node.inputs[0]
    source = _reshaped(graph, x)
    return (
        source is not None and _keeps_shape(graph, node, x) and _sink(rewriter, node, x, (source,))
    )


def _channelwise(rewriter: Rewriter, node: Node) -> bool:
    graph, x = rewriter.graph, node.inputs[0]
    source = _reshaped(graph, x)
    if source is None or not _keeps_shape(graph, node, x):
        return False
    constants = [_along_channels(rewriter, v, source, x) for v in node.inputs[1:]]
    known = [c for c in constants if c is not None]
    return len(known) == len(constants) and _sink(rewriter, node, x, (source, *known))


def _binary(rewriter: Rewriter, node: Node) -> bool:
    """Pass an op on a layer and a constant, or on two layers that are reshaped in the same way."""
    graph = rewriter.graph
    sources = [_reshaped(graph, v) for v in node.inputs]
    first = next((i for i, source in enumerate(sources) if source is not None), None)
    if first is None or not _keeps_shape(graph, node, node.inputs[first]):
        return False
    x, source = node.inputs[first], sources[first] or ""
    inputs = []
    for value, other in zip(node.inputs, sources, strict=True):
        fits = other is not None and graph.types[other].shape == graph.types[source].shape
        same = fits and graph.types[value].shape == graph.types[x].shape
        made = other if same else _along_channels(rewriter, value, source, x)
        if made is None:
            return False
        inputs.append(made)
    return _sink(rewriter, node, x, inputs)


def _merge(rewriter: Rewriter, node: Node) -> bool:
    """Remove a reshape to the shape that there is, and one before another."""
    graph, first = rewriter.graph, rewriter.graph.producer(node.inputs[0])
    source = first.inputs[0] if first.op == "reshape" else node.inputs[0]
    same = graph.types[source] == graph.types[node.name]
    if same and not node.control and not graph.control_users(node.name):
        return rewriter.replace_value(node.name, source)
    return first.op == "reshape" and rewriter.put(replace(node, inputs=(source,)))


def _along_channels(rewriter: Rewriter, value: str, source: str, reshaped: str) -> str | None:
    """The constant `value`, which fits `reshaped`, as a vector along the channels of `source`."""
    graph = rewriter.graph
    constant, before, after = graph.constant(value), *_shapes(graph, source, reshaped)
    if constant is None or not before or not after or constant.ndim > len(after):
        return None
    if constant.ndim == 0:
        return value
    start = _first_channel_axis(before[-1], after)
    whole = constant.reshape((1,) * (len(after) - constant.ndim) + constant.shape)
    if start is None or any(size != 1 for size in whole.shape[:start]):
        return None
    sizes = [size or 0 for size in after[start:]]
    vector = np.broadcast_to(whole.reshape(whole.shape[start:]), sizes).reshape(-1)
    if constant.shape == vector.shape:
        return value
    return rewriter.const(np.ascontiguousarray(vector), f"{value}/channels")


def _shapes(graph: Graph, *values: str) -> list[Shape | None]:
    return [graph.types[value].shape for value in values]


def _first_channel_axis(channels: int | None, after: Shape) -> int | None:
    """The first of the last axes that hold the channels; None where others are joined to them."""
    size, axis = 1, len(after)
    while axis and (axis == len(after) or size < (channels or 0)):
        axis -= 1
        size *= after[axis] or 0
    return axis if size == channels else None
