"""A check of the samples: codes of indices start at 0, so a negative index has none."""

from __future__ import annotations

from qgraph.errors import CalibrationError
from qgraph.ir.graph import Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, Role
from qgraph.quant.graph_values import GraphValues
from qgraph.quant.thresholds import Range


def check_indices(node: Node, values: GraphValues) -> None:
    """Raise CalibrationError if a quantizer of indices gets a negative one."""
    made = node.op == "lookup"  # from other codes
    if made or spec_of(node).role != Role.INDEX or node.inputs[0] in values.constants:
        return

    def least(x: Array, ends: Range | None) -> float:
        return float(x.min(initial=0))

    low = min(values.reduced(node.inputs[0], least), default=0)
    if low < 0:
        raise CalibrationError(
            f"an index of {low:g} in the samples: indices of fixed-point networks start at 0",
            node=node.name,
            hint="add the size of the table to negative indices before the network",
        )
