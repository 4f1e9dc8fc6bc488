"""Remove nodes that return their input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.arithmetic import CastAttrs
from qgraph.ir.ops.attributes import AxesAttrs, AxisAttrs
from qgraph.ir.ops.movement import PaddingAttrs, PartAttrs, TargetAttrs
from qgraph.ir.types import TensorType
from qgraph.ops.movement import TransposeAttrs
from qgraph.passes import RewritePass
from qgraph.rewrite.arithmetic_rules import NEUTRAL
from qgraph.rewrite.rewriter import Rewriter, Rule

OPS = ("identity", "transpose", "reshape", "pad", "cast", "squeeze", "slice", "concat")


@dataclass(frozen=True)
class SpliceIdentities(RewritePass):
    """Remove identities, and reshapes, transposes, pads, casts, x * 1 ... that change nothing.

    An axis that is added and then removed is not added, and a concat has no members without
    elements.

    Refusal: a node with control edges, whose position in the order of execution may matter.
    """

    name: ClassVar[str] = "splice-identities"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("empty", ("concat",), _empty),
            Rule("splice", OPS, _splice),
            Rule("inverse", ("squeeze",), _inverse),
            NEUTRAL,
        )


def _splice(rewriter: Rewriter, node: Node) -> bool:
    if not _changes_nothing(rewriter.graph, node):
        return False
    if node.control or rewriter.graph.control_users(node.name):
        return rewriter.refuse(node, "it has control edges")
    return rewriter.replace_value(node.name, node.inputs[0])


def _empty(rewriter: Rewriter, node: Node) -> bool:
    """Leave out the members of a concat that have no elements, unless none has any."""
    graph = rewriter.graph
    axis = node.typed(AxisAttrs).axis
    shapes = [graph.types[value].shape for value in node.inputs]
    kept = tuple(
        value
        for value, shape in zip(node.inputs, shapes, strict=True)
        if shape is None or shape[axis] != 0
    )
    if not kept or len(kept) == len(node.inputs):
        return False
    return rewriter.put(replace(node, inputs=kept))


def _inverse(rewriter: Rewriter, node: Node) -> bool:
    graph, before = rewriter.graph, rewriter.graph.producer(node.inputs[0])
    rank = graph.types[before.name].rank
    if before.op != "expand_dims" or rank is None:
        return False
    added = before.typed(AxisAttrs).axis % rank
    if {axis % rank for axis in node.typed(AxesAttrs).axes} != {added}:
        return False
    if node.control or graph.control_users(node.name):
        return rewriter.refuse(node, "it has control edges")
    return rewriter.replace_value(node.name, before.inputs[0])


def _changes_nothing(graph: Graph, node: Node) -> bool:
    attrs, source = node.attributes, graph.types[node.inputs[0]]
    match attrs:
        case TransposeAttrs():
            return attrs.perm == tuple(range(len(attrs.perm)))
        case TargetAttrs():
            return _same_reshape(source, attrs.shape)
        case PaddingAttrs():
            return not any(n for pair in attrs.paddings for n in pair)
        case CastAttrs():
            return attrs.dtype == source.dtype
        case AxesAttrs():
            return not attrs.axes
        case PartAttrs():
            dims = source.shape or (None,) * len(attrs.begin)
            return all(
                (not part.start or (d is not None and part.start <= -d))
                and part.step in (1, None)
                and (part.stop is None or (d is not None and part.stop >= d))
                for part, d in zip(attrs.slices, dims, strict=True)
            )
    return len(node.inputs) == 1  # identity, or a concat of one


def _same_reshape(source: TensorType, target: tuple[int, ...]) -> bool:
    """True if `target` is the shape of `source`, with -1 for one dimension."""
    if source.shape is None or len(source.shape) != len(target) or 0 in source.shape:
        return False
    return all(t in (d, -1) for d, t in zip(source.shape, target, strict=True))
