"""Fold `x - mean(x)` over channels into the layer that computes x."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array
from qgraph.passes import RewritePass
from qgraph.rewrite.constants import is_channel_mean, is_layer, not_constant, other_users
from qgraph.rewrite.removable import groups
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class FoldCentering(RewritePass):
    """A layer whose output is centred over channels gets centred weights and a centred bias.

    The advantage head of a dueling network is the common case. The weights become `W - mean(W)`,
    the bias `b - mean(b)`, with means over output channels; the network then needs no mean.
    Refusal: x has other users. In a sum like `V + A - mean(A)`, the two terms are first brought
    together, in any order.
    """

    name: ClassVar[str] = "fold-centering"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("gather", ("add", "sub"), _gather), Rule("center", ("sub",), _center))


def _gather(rewriter: Rewriter, node: Node) -> bool:
    """A sum with the terms x and -mean(x) begins with x - mean(x)."""
    graph = rewriter.graph
    terms = list(_terms(graph, node))
    for minus, value in terms:
        mean = graph.producer(value)
        if not minus or not is_channel_mean(graph, mean):
            continue
        x = mean.inputs[0]
        if (False, x) not in terms or len(terms) == 2:
            continue
        terms.remove((True, value))
        terms.remove((False, x))
        total = rewriter.add("sub", x, value, name=f"{node.name}/centered")
        for below, one in terms[:-1]:
            total = rewriter.add("sub" if below else "add", total, one)
        below, last = terms[-1]
        return rewriter.put(
            replace(node, op="sub" if below else "add", inputs=(total, last), attrs={})
        )
    return False


def _terms(graph: Graph, node: Node, minus: bool = False) -> Iterator[tuple[bool, str]]:
    """The terms of a sum, and whether each is subtracted; x - mean(x) is one of them."""
    for index, value in enumerate(node.inputs):
        below = minus != (node.op == "sub" and index == 1)
        inner = graph.producer(value)
        whole = inner.op in ("add", "sub") and graph.use_count(value) == 1
        if whole and not _is_centering(graph, inner):
            yield from _terms(graph, inner, below)
        else:
            yield below, value


def _is_centering(graph: Graph, node: Node) -> bool:
    mean = graph.producer(node.inputs[1])
    return node.op == "sub" and is_channel_mean(graph, mean) and mean.inputs[0] == node.inputs[0]


def _center(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    x, mean = node.inputs[0], graph.producer(node.inputs[1])
    if not is_channel_mean(graph, mean) or mean.inputs[0] != x:
        return False
    bias = graph.producer(x) if graph.producer(x).op == "bias_add" else None
    layer = graph.producer(bias.inputs[0]) if bias else graph.producer(x)
    if not is_layer(layer) or layer.op == "depthwise_conv2d":
        return False
    if groups(graph, layer) != 1:
        return rewriter.refuse(node, f"channels of `{layer.name}` have their own inputs")
    weights = graph.constant(layer.inputs[1])
    offset = graph.constant(bias.inputs[1]) if bias else None
    if weights is None or (bias is not None and offset is None):
        return rewriter.refuse(
            node, not_constant(graph, f"the weights of `{layer.name}`", layer.inputs[1])
        )
    users = other_users(graph, x, node.name, mean.name) or (
        other_users(graph, layer.name, bias.name) if bias else ""
    )
    if users or graph.use_count(mean.name) > 1:
        return rewriter.refuse(node, users or f"`{mean.name}` is used elsewhere too")
    rewriter.replace_value(node.name, x)
    made = rewriter.const(_centered(weights), f"{layer.inputs[1]}/centered")
    rewriter.put(replace(layer, inputs=(layer.inputs[0], made)))
    if bias is not None and offset is not None:
        made = rewriter.const(_centered(offset), f"{bias.inputs[1]}/centered")
        rewriter.put(replace(bias, inputs=(bias.inputs[0], made)))
    return rewriter.log(graph.nodes[layer.name], "its outputs add up to zero")


def _centered(constant: Array) -> Array:
    wide = constant.astype(np.float64)
    centered: Array = (wide - wide.mean(axis=-1, keepdims=True)).astype(constant.dtype)
    return centered
