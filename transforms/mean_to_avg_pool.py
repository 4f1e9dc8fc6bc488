"""Write spatial means as average pools over the whole image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qgraph.ir.graph import Node
from qgraph.ir.ops.pool import ReductionAttrs
from qgraph.ir.ops.windows import PaddingRule
from qgraph.passes import RewritePass
from qgraph.rewrite.rewriter import Rewriter, Rule

# Axes of the height and width of NHWC images, and of the length of signals [n, length, c].
SPATIAL = {4: (1, 2), 3: (1,)}


@dataclass(frozen=True)
class MeanToAvgPool(RewritePass):
    """A mean over height, width or both of an NHWC tensor becomes an average pool (and a squeeze).

    A signal [n, length, c] is pooled as an image of height 1, as in the layers around it.
    Refusals: means over other axes or in other ranks; an unknown pooled size.
    """

    name: ClassVar[str] = "mean-to-avg-pool"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("global-pool", ("mean",), _pool),)


def _pool(rewriter: Rewriter, node: Node) -> bool:
    x = node.inputs[0]
    known = rewriter.graph.types[x]
    rank = known.rank
    if known.shape is None or rank not in SPATIAL:
        return rewriter.refuse(
            node, f"it takes {known}, not an NHWC tensor of rank 4 or a signal of rank 3"
        )
    reduced = node.typed(ReductionAttrs)
    axes = sorted({axis % rank for axis in reduced.axes})
    if not axes or not set(axes) <= set(SPATIAL[rank]):
        where = "height and width (1, 2)" if rank == 4 else "the length (1)"
        return rewriter.refuse(node, f"it is over axes {axes}, not over {where}")
    if None in (known.shape[axis] for axis in axes):
        unknown = "the height and width of {} are" if rank == 4 else "the length of {} is"
        return rewriter.refuse(node, f"{unknown.format(known)} unknown: give --input-shape")
    window = tuple(known.shape[axis] if axis in axes else 1 for axis in SPATIAL[rank])
    added = 4 - rank  # the height of a signal
    image = x
    if added:
        image = rewriter.add("expand_dims", x, name=f"{node.name}/image", attrs={"axis": 1})
    attrs = {"ksize": (1,) * added + window, "strides": (1, 1), "padding": PaddingRule.VALID}
    removed_axes = () if reduced.keepdims else tuple(axis + added for axis in axes)
    squeezed = (1,) * added + removed_axes
    if not squeezed:
        return rewriter.put(Node(node.name, "avg_pool", (image,), attrs, node.control))
    pooled = rewriter.add("avg_pool", image, name=f"{node.name}/pool", attrs=attrs)
    return rewriter.put(Node(node.name, "squeeze", (pooled,), {"axes": squeezed}, node.control))
