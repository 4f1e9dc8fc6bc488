"""Spatial means as average pools over the whole map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qgraph.ir.graph import Node
from qgraph.passes import RewritePass
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class MeanToAvgPool(RewritePass):
    """The mean over height and width of an NHWC tensor becomes an average pool (and a squeeze).

    Refusals: other axes or ranks; a height or width that is not known.
    """

    name: ClassVar[str] = "mean-to-avg-pool"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("global-pool", ("mean",), _pool),)


def _pool(rewriter: Rewriter, node: Node) -> bool:
    x = node.inputs[0]
    known = rewriter.graph.types[x]
    if known.shape is None or len(known.shape) != 4:
        return rewriter.refuse(node, f"it takes {known}, not an NHWC tensor of rank 4")
    axes = sorted({axis % 4 for axis in node.attrs["axes"]})
    if axes != [1, 2]:
        return rewriter.refuse(node, f"it is over axes {axes}, not over height and width (1, 2)")
    size = known.shape[1:3]
    if None in size:
        return rewriter.refuse(
            node, f"the height and width of {known} are not known: give --input-shape"
        )
    attrs = {"ksize": size, "strides": (1, 1), "padding": "valid"}
    if node.attrs["keepdims"]:
        return rewriter.put(Node(node.name, "avg_pool", (x,), attrs, node.control))
    pooled = rewriter.add("avg_pool", x, name=f"{node.name}/pool", attrs=attrs)
    squeezed = Node(node.name, "squeeze", (pooled,), {"axes": (1, 2)}, node.control)
    return rewriter.put(squeezed)
