"""The inverse of a number of elements, as a function of one number."""

from __future__ import annotations

from qgraph.ir.graph import Node
from qgraph.ir.ops.composed import ComposedAttrs, Steps

INVERSE_OF_COUNT: Steps = (("maximum", (0, 1.0), ()), ("reciprocal", (1,), ()))


def is_inverse_of_count(node: Node) -> bool:
    found = node.attributes
    return isinstance(found, ComposedAttrs) and found.steps == INVERSE_OF_COUNT
