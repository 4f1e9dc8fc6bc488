"""Average pools as depthwise convolutions, which fixed point can compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.pool import PoolAttrs, window_count
from qgraph.ir.ops.windows import PaddingRule
from qgraph.ir.types import Array
from qgraph.ops.attribute_types import Pads
from qgraph.passes import RewritePass
from qgraph.rewrite.rewriter import Rewriter, Rule

ONE = (1, 1)
NO_PADS = ((0, 0), (0, 0))


@dataclass(frozen=True)
class AvgPoolToDepthwise(RewritePass):
    """An average pool becomes a depthwise convolution with a filter of reciprocals.

    If padding makes windows of different sizes, the filter has ones, and the sum is multiplied by a
    map of reciprocals over the output positions. Nodes with reciprocals or ones carry `pool=True`.
    Refusals: unknown channels, or an unknown size that the padding depends on.
    """

    name: ClassVar[str] = "avg-pool-to-depthwise"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("depthwise", ("avg_pool",), _convert),)


def _convert(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    known = graph.types[node.inputs[0]]
    channels = known.shape[3] if known.shape else None
    if channels is None:
        return rewriter.refuse(node, f"the channels of {known} are unknown")
    counted = _pads_and_count(graph, node)
    if counted is None:
        return rewriter.refuse(
            node,
            f"its padding depends on the height and width of {known}, which are unknown:"
            " give --input-shape",
        )
    pads, count = counted
    if not count.all():
        return rewriter.refuse(node, "some of its windows contain only padding")
    pool, dtype = node.typed(PoolAttrs), np.dtype(known.dtype)
    attrs = {
        "strides": pool.strides,
        "dilations": ONE,
        "padding": PaddingRule.VALID if pads == NO_PADS else pads,
        "pool": True,
    }
    shape = (*pool.ksize, channels, 1)
    if (count == count.flat[0]).all():
        filled = np.full(shape, 1 / count.flat[0], dtype)
        weights = rewriter.const(filled, f"{node.name}/reciprocal")
        inputs = (node.inputs[0], weights)
        return rewriter.put(Node(node.name, "depthwise_conv2d", inputs, attrs, node.control))
    ones = rewriter.const(np.ones(shape, dtype), f"{node.name}/ones")
    total = rewriter.add(
        "depthwise_conv2d", node.inputs[0], ones, name=f"{node.name}/sum", attrs=attrs
    )
    reciprocals = rewriter.const((1 / count).astype(dtype), f"{node.name}/map")
    return rewriter.put(Node(node.name, "mul", (total, reciprocals), {"pool": True}, node.control))


def _pads_and_count(graph: Graph, node: Node) -> tuple[Pads, Array] | None:
    """Explicit padding and the number of real positions in each window, if they are known."""
    pool, shape = node.typed(PoolAttrs), graph.types[node.inputs[0]].shape
    height, width = shape[1:3] if shape else (None, None)
    alone = pool.ksize == ONE and pool.padding is PaddingRule.SAME
    if alone or pool.padding in (PaddingRule.VALID, NO_PADS):
        return NO_PADS, np.full(1, float(np.prod(pool.ksize)))
    if height is None or width is None:
        return None
    sizes = (height, width)
    return pool.pads(sizes), window_count(height, width, pool)
