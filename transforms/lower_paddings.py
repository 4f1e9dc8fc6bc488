"""Padding with other numbers than zero as padding with zeros and a sum, or as that of a pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.movement import PaddingAttrs
from qgraph.ir.ops.pool import PoolAttrs
from qgraph.ir.ops.windows import PaddingRule
from qgraph.ir.reading import padding_value
from qgraph.passes import RewritePass
from qgraph.quant.topology import is_nonnegative
from qgraph.rewrite.constants import only_user
from qgraph.rewrite.rewriter import Rewriter, Rule

LOWEST = -1e30  # numbers below are never the largest of a window
NONE = ((0, 0), (0, 0))


@dataclass(frozen=True)
class LowerPaddings(RewritePass):
    """Padding that is never the largest of a window becomes padding of the max pool behind it.

    Any other padding value but 0 is added to zeros, as a constant around the tensor: padding in
    fixed point has the code 0. Refusals: an unknown size of a padded axis; padding of the batch.
    """

    name: ClassVar[str] = "lower-paddings"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("padding", ("pad",), _lower),)


def _lower(rewriter: Rewriter, node: Node) -> bool:
    pool = only_user(rewriter.graph, node.name)
    if pool is not None and pool.op == "max_pool" and _takes_padding(rewriter.graph, pool, node):
        changed = {**pool.attrs, "padding": node.typed(PaddingAttrs).paddings[1:3]}
        made = Node(pool.name, "max_pool", node.inputs, changed, pool.control)
        return rewriter.put(made)
    return _sum(rewriter, node)


def _takes_padding(graph: Graph, node: Node, pad: Node) -> bool:
    """Whether padding may become that of the pool `node`, every window of which has elements."""
    attrs, pool = pad.typed(PaddingAttrs), node.typed(PoolAttrs)
    first, *inner, last = attrs.paddings
    if attrs.mode != "constant" or (first, last) != ((0, 0), (0, 0)) or pad.control:
        return False
    small = all(max(p) < size for p, size in zip(inner, pool.ksize, strict=True))
    return small and pool.padding in (PaddingRule.VALID, NONE) and _is_never_largest(graph, pad)


def _is_never_largest(graph: Graph, pad: Node) -> bool:
    value = padding_value(pad)
    return value <= LOWEST or (value < 0 and is_nonnegative(graph)(pad.inputs[0]))


def _sum(rewriter: Rewriter, node: Node) -> bool:
    graph, value = rewriter.graph, padding_value(node)
    known, attrs = graph.types[node.name], node.typed(PaddingAttrs)
    if not value or not known.is_float or not known.shape:
        return False
    if not abs(value) < -LOWEST:
        return rewriter.refuse(node, f"it pads with {value}")
    if attrs.paddings[0] != (0, 0):
        return rewriter.refuse(node, "it pads the batch")
    sizes = [size if any(p) else 1 for size, p in zip(known.shape, attrs.paddings, strict=True)]
    if None in sizes:
        return rewriter.refuse(node, f"sizes of {known} are unknown: give --input-shape")
    around = np.full([size or 0 for size in sizes], value, np.dtype(known.dtype))
    inside = [slice(a, (size or 0) - b) for size, (a, b) in zip(sizes, attrs.paddings, strict=True)]
    around[tuple(inside)] = 0
    zeros = {"paddings": attrs.paddings}
    padded = rewriter.add("pad", node.inputs[0], name=f"{node.name}/zeros", attrs=zeros)
    constant = rewriter.const(around, f"{node.name}/around")
    return rewriter.put(Node(node.name, "add", (padded, constant), {}, node.control))
