"""Fold the transpose before a flattened image into the weights that read it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from qgraph.ir.graph import Node
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.types import Array
from qgraph.ops.movement import TransposeAttrs
from qgraph.passes import RewritePass
from qgraph.rewrite.constants import not_constant
from qgraph.rewrite.elementwise import UNARY
from qgraph.rewrite.rewriter import Rewriter, Rule

Order = npt.NDArray[np.int64]
SUFFIX = "untransposed"


@dataclass(frozen=True)
class FoldFlattens(RewritePass):
    """Let a dense layer read an image in its own order; the rows of weights are reordered.

    The image was transposed and flattened, and may have passed through activations or been joined
    with other features. Refusal: weights that are not constant.
    """

    name: ClassVar[str] = "fold-flattens"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("reorder-weights", ("matmul",), _reorder),)


def _reorder(rewriter: Rewriter, node: Node) -> bool:
    x, w = node.inputs
    orders = _orders(rewriter, x)
    if orders is None:
        return False
    weights = rewriter.graph.constant(w)
    if weights is None:
        return rewriter.refuse(node, not_constant(rewriter.graph, f"its weights `{w}`", w))
    moved = np.empty_like(weights)
    moved[orders[x]] = weights
    plain = _without(rewriter, x, orders)
    made = rewriter.const(moved, f"{w}/{SUFFIX}")
    return rewriter.put(replace(node, inputs=(plain, made)))


def _orders(rewriter: Rewriter, x: str) -> Mapping[str, Order] | None:
    """The order of `x` and of its parts, down to flattened images; None if there are none."""
    graph = rewriter.graph
    orders: dict[str, Order] = {}
    found = False
    path, waiting = [], [x]
    while waiting:
        value = waiting.pop()
        path.append(value)
        waiting += _parts(graph.producer(value))
    for value in reversed(path):
        node = graph.producer(value)
        parts = _parts(node)
        shape = graph.types[value].shape
        width = shape[-1] if shape is not None and len(shape) == 2 else None
        if width is None:
            return None
        flattened = None if parts else _flattened(rewriter, node, width)
        found = found or flattened is not None
        if parts:
            sizes = [0, *np.cumsum([orders[p].size for p in parts])[:-1]]
            orders[value] = np.concatenate(
                [orders[p] + start for p, start in zip(parts, sizes, strict=True)]
            )
        else:
            orders[value] = np.arange(width) if flattened is None else flattened
    return orders if found else None


def _parts(node: Node) -> tuple[str, ...]:
    """Values whose features are those of `node`, one for one."""
    if node.op in UNARY:
        return node.inputs
    if node.op == "concat" and node.typed(AxisAttrs).axis in (1, -1):
        return node.inputs
    return ()


def _flattened(rewriter: Rewriter, node: Node, width: int) -> Order | None:
    """Position of each feature of a flattened image in the image before its transpose."""
    graph = rewriter.graph
    turned = graph.producer(node.inputs[0]) if node.op == "reshape" else node
    if node.op != "reshape" or turned.op != "transpose":
        return None
    before, after = graph.types[turned.name].shape, graph.types[node.name].shape
    perm = turned.typed(TransposeAttrs).perm
    if before is None or after is None or perm[0] != 0 or before[0] != after[0]:
        return None
    sizes = [0 if d is None else d for d in before[1:]]
    if math.prod(sizes) != width:
        return None
    axes = [p - 1 for p in perm[1:]]
    image: Array = np.arange(width).reshape([sizes[axes.index(a)] for a in range(len(axes))])
    order: Order = image.transpose(axes).reshape(-1)
    return order


def _without(rewriter: Rewriter, x: str, orders: Mapping[str, Order]) -> str:
    """`x` with its features in the order of the image, reused or new."""
    graph = rewriter.graph
    node = graph.producer(x)
    parts = _parts(node)
    if parts:
        inputs = tuple(_without(rewriter, p, orders) for p in parts)
    elif (orders[x] == np.arange(orders[x].size)).all():
        return x
    else:
        inputs = (graph.producer(node.inputs[0]).inputs[0],)
    if inputs == node.inputs:
        return x
    for user in graph.users(inputs[0]):
        if (user.op, user.inputs, user.attrs) == (node.op, inputs, node.attrs):
            return user.name
    return rewriter.add(node.op, *inputs, name=f"{node.name}/{SUFFIX}", attrs=node.attrs)
