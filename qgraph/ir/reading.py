"""Functions that read common attributes of nodes."""

from __future__ import annotations

from qgraph.ir.graph import Node
from qgraph.ir.ops.attributes import AxisAttrs, MarkedAttrs
from qgraph.ir.ops.movement import PaddingAttrs
from qgraph.ir.ops.structure import ConstantAttrs, OpaqueAttrs, QuantizerAttrs
from qgraph.ir.types import Array, QuantSpec, Role

_UNMARKED = MarkedAttrs()


def spec_of(node: Node) -> QuantSpec:
    """The spec of a quantizer. Raises GraphError for other nodes."""
    return node.typed(QuantizerAttrs).spec


def spec_if_any(node: Node) -> QuantSpec | None:
    """The spec of a quantizer; None for other nodes."""
    found = node.attributes
    return found.spec if isinstance(found, QuantizerAttrs) else None


def only_rounds(node: Node) -> bool:
    """Whether a node is a quantizer without which a network computes nearly the same.

    A quantizer of indices is not: it also limits them, as a mask of the indices above 0 needs it.
    """
    return node.op == "quantize" and spec_of(node).role != Role.INDEX


def value_of(node: Node) -> Array:
    """The elements of a constant. Raises GraphError for other nodes."""
    return node.typed(ConstantAttrs).value


def marks_of(node: Node) -> MarkedAttrs:
    """The marks that passes set on arithmetic; no marks on other nodes."""
    found = node.attributes
    return found if isinstance(found, MarkedAttrs) else _UNMARKED


def padding_value(node: Node) -> int | float:
    """Padding value of a `pad`; 0 on other nodes."""
    found = node.attributes
    return found.value if isinstance(found, PaddingAttrs) else 0


def along_channels(node: Node, rank: int) -> bool:
    """Whether the axis of a node is the last one of a tensor of this rank."""
    return node.typed(AxisAttrs).axis in (-1, rank - 1)


def kind_of(node: Node) -> str:
    """The name of the op; for an opaque node the name in its source."""
    found = node.attributes
    return found.kind if isinstance(found, OpaqueAttrs) else node.op
