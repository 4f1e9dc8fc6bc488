"""Move transposes towards the outputs, so that NCHW graphs become NHWC inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Attrs, Node
from qgraph.ir.ops.attributes import AxesAttrs, AxisAttrs
from qgraph.ir.ops.pool import ReductionAttrs
from qgraph.ir.types import Shape
from qgraph.ops.movement import TransposeAttrs
from qgraph.passes import RewritePass
from qgraph.rewrite.axes import Group, groups_of
from qgraph.rewrite.elementwise import BINARY, UNARY
from qgraph.rewrite.rewriter import Rewriter, Rule, apply_rules

Perm = tuple[int, ...]

LAST_AXIS = ("bias_add", "batch_norm")
REDUCTIONS = ("mean", "sum", "reduce_max", "squeeze")


@dataclass(frozen=True)
class SinkTransposes(RewritePass):
    """Move each transpose below the ops that allow it; pairs that meet cancel.

    Imported NCHW layers are between two transposes; those of neighbours cancel after moving through
    the ops between. They move in one direction, so it ends. A name keeps its value: when a
    transpose passes `relu`, `relu` becomes the transpose and `relu/untransposed` the op. It passes
    a reshape that joins axes that are adjacent before the transpose, too. Refusal: an elementwise
    op of which only some inputs are transposed.
    """

    name: ClassVar[str] = "sink-transposes"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("merge", ("transpose",), _merge),
            Rule("elementwise", (*UNARY, *BINARY), _elementwise),
            Rule("last-axis", LAST_AXIS, _last_axis),
            Rule("concat", ("concat",), _concat),
            Rule("axes", ("pad", "slice"), _axes),
            Rule("expand", ("expand_dims",), _expand),
            Rule("regroup", ("reshape",), _regroup),
            Rule("reduction", REDUCTIONS, _reduction),
        )

    def apply(self, rewriter: Rewriter) -> None:
        # Only after the others: a reshape would stop the transposes above it.
        last = (
            Rule("as-reshape", ("transpose",), _as_reshape),
            Rule("merge-reshapes", ("reshape",), _merge_reshapes),
        )
        before = -1
        while before != rewriter.changes:  # reshapes that are merged may be passed again
            super().apply(rewriter)
            before = rewriter.changes
            apply_rules(rewriter, last)


def _perm(rewriter: Rewriter, value: str) -> Perm | None:
    node = rewriter.graph.producer(value)
    return node.typed(TransposeAttrs).perm if node.op == "transpose" else None


def _source(rewriter: Rewriter, value: str) -> str:
    return rewriter.graph.producer(value).inputs[0]


def _merge(rewriter: Rewriter, node: Node) -> bool:
    """Replace two transposes in a row by one, or remove both."""
    perm, x = node.typed(TransposeAttrs).perm, node.inputs[0]
    first = _perm(rewriter, x)
    merged = tuple(first[p] for p in perm) if first else perm
    source = _source(rewriter, x) if first else x
    if merged == tuple(range(len(merged))):
        return rewriter.replace_value(node.name, source)
    if first:
        return rewriter.put(replace(node, inputs=(source,), attrs={"perm": merged}))
    return False


def _as_reshape(rewriter: Rewriter, node: Node) -> bool:
    """Write a transpose that only moves dimensions of size 1 as a reshape."""
    perm, shape = node.typed(TransposeAttrs).perm, rewriter.graph.types[node.inputs[0]].shape
    if shape is None or not _is_reshape(shape, perm):
        return False
    return rewriter.put(replace(node, op="reshape", attrs={"shape": _target(shape, perm)}))


def _is_reshape(shape: Shape, perm: Perm) -> bool:
    """Whether the permutation only moves dimensions of size 1."""
    if shape.count(None) > 1 or 0 in shape:
        return False
    moving = [p for p in perm if shape[p] != 1]
    return moving == sorted(moving)


def _target(shape: Shape, perm: Perm) -> tuple[int, ...]:
    dims = (shape[p] for p in perm)
    return tuple(-1 if d is None else d for d in dims)


def _merge_reshapes(rewriter: Rewriter, node: Node) -> bool:
    first = rewriter.graph.producer(node.inputs[0])
    return first.op == "reshape" and rewriter.put(replace(node, inputs=first.inputs))


def _sink(rewriter: Rewriter, node: Node, inputs: Sequence[str], attrs: Attrs, perm: Perm) -> bool:
    """`node` becomes a transpose of itself on `inputs`, which are not transposed."""
    inner = rewriter.add(node.op, *inputs, name=f"{node.name}/untransposed", attrs=attrs)
    if perm == tuple(range(len(perm))):
        return rewriter.replace_value(node.name, inner)
    return rewriter.put(Node(node.name, "transpose", (inner,), {"perm": perm}, node.control))


def _elementwise(rewriter: Rewriter, node: Node) -> bool:
    return _together(rewriter, node, lambda perm: node.attrs)


def _concat(rewriter: Rewriter, node: Node) -> bool:
    axis = node.typed(AxisAttrs).axis
    return _together(rewriter, node, lambda perm: {**node.attrs, "axis": perm[axis]})


def _together(rewriter: Rewriter, node: Node, attrs: Callable[[Perm], Attrs]) -> bool:
    """Pass a node whose inputs are all transposed by the same permutation, or constant."""
    perms = [_perm(rewriter, value) for value in node.inputs]
    perm = next((p for p in perms if p is not None), None)
    if perm is None:
        return False
    for value, found in zip(node.inputs, perms, strict=True):
        if found != perm and (found or not _fits(rewriter, node, value, perm)):
            state = f"transposed by {found}" if found else "not transposed"
            reason = f"`{value}` is {state}, another input by {perm}"
            return rewriter.refuse(node, reason)
    inputs = [
        _source(rewriter, value) if found else _unpermuted(rewriter, value, perm)
        for value, found in zip(node.inputs, perms, strict=True)
    ]
    return _sink(rewriter, node, inputs, attrs(perm), perm)


def _fits(rewriter: Rewriter, node: Node, value: str, perm: Perm) -> bool:
    """Whether a value that is not transposed can be transposed without cost."""
    rank, constant = len(perm), rewriter.graph.constant(value)
    if constant is None:
        shape = rewriter.graph.types[value].shape
        if shape is None or len(shape) != rank:
            return False
        return _is_reshape(shape, perm) or _is_graph_input(rewriter, node, value)
    return constant.ndim == rank if node.op == "concat" else constant.ndim <= rank


def _is_graph_input(rewriter: Rewriter, node: Node, value: str) -> bool:
    """Whether a value is a graph input next to computed values: its transpose is not moved."""
    graph = rewriter.graph
    others = (graph.producer(v) for v in node.inputs if v != value)
    sources = [graph.producer(n.inputs[0]).op for n in others if n.op == "transpose"]
    return graph.producer(value).op == "input" and "input" not in sources


def _unpermuted(rewriter: Rewriter, value: str, perm: Perm) -> str:
    """The constant whose transpose by `perm` equals `value`."""
    constant, back = rewriter.graph.constant(value), tuple(int(p) for p in np.argsort(perm))
    if constant is None:
        name, shape = f"{value}/untransposed", rewriter.graph.types[value].shape or ()
        if _is_reshape(shape, back):
            attrs = {"shape": _target(shape, back)}
            return rewriter.add("reshape", value, name=name, attrs=attrs)
        return rewriter.add("transpose", value, name=name, attrs={"perm": back})
    if constant.ndim == 0:
        return value
    full = constant.reshape((1,) * (len(perm) - constant.ndim) + constant.shape)
    array = np.ascontiguousarray(full.transpose(back))
    return rewriter.const(array, f"{value}/untransposed")


def _last_axis(rewriter: Rewriter, node: Node) -> bool:
    perm = _perm(rewriter, node.inputs[0])
    if perm is None or perm[-1] != len(perm) - 1:
        return False
    inputs = (_source(rewriter, node.inputs[0]), *node.inputs[1:])
    return _sink(rewriter, node, inputs, node.attrs, perm)


def _axes(rewriter: Rewriter, node: Node) -> bool:
    """Pass pads and slices, which have one entry for each axis."""
    perm = _perm(rewriter, node.inputs[0])
    if perm is None:
        return False
    back = [perm.index(axis) for axis in range(len(perm))]
    attrs = {
        key: tuple(value[i] for i in back)
        for key, value in node.attrs.items()
        if key in ("paddings", "begin", "end", "strides")
    }
    source = _source(rewriter, node.inputs[0])
    return _sink(rewriter, node, (source,), {**node.attrs, **attrs}, perm)


def _reduction(rewriter: Rewriter, node: Node) -> bool:
    perm = _perm(rewriter, node.inputs[0])
    if perm is None:
        return False
    removed_axes = {axis % len(perm) for axis in node.typed(AxesAttrs).axes}
    attrs = {**node.attrs, "axes": tuple(sorted(perm[axis] for axis in removed_axes))}
    reduced = node.attributes
    if not (isinstance(reduced, ReductionAttrs) and reduced.keepdims):
        left = [p for i, p in enumerate(perm) if i not in removed_axes]
        perm = tuple(sorted(left).index(p) for p in left)
    return _sink(rewriter, node, (_source(rewriter, node.inputs[0]),), attrs, perm)


def _expand(rewriter: Rewriter, node: Node) -> bool:
    perm = _perm(rewriter, node.inputs[0])
    if perm is None:
        return False
    axis = node.typed(AxisAttrs).axis % (len(perm) + 1)
    place = perm[axis] if axis < len(perm) else len(perm)
    moved = [p + (p >= place) for p in perm]
    made = (*moved[:axis], place, *moved[axis:])
    return _sink(rewriter, node, (_source(rewriter, node.inputs[0]),), {"axis": place}, made)


def _regroup(rewriter: Rewriter, node: Node) -> bool:
    """Pass a reshape, group by group of its axes; a permutation within a group is not moved."""
    graph, x = rewriter.graph, node.inputs[0]
    perm, before, after = _perm(rewriter, x), graph.types[x].shape, graph.types[node.name].shape
    if perm is None or before is None or after is None:
        return False
    groups = groups_of(before, after)
    places = None if groups is None else _places(groups, perm, before)
    if groups is None or places is None:
        return False
    order = sorted(range(len(groups)), key=lambda g: places[g])
    if order == list(range(len(groups))):
        return False
    inner = tuple(perm[axis] for g in order for axis in groups[g].before)
    kept = [axis for g in order for axis in groups[g].after]
    source = _source(rewriter, x)
    if inner != tuple(range(len(inner))):
        attrs = {"perm": inner}
        source = rewriter.add("transpose", source, name=f"{node.name}/turned", attrs=attrs)
    shape = tuple(-1 if after[axis] is None else after[axis] for axis in kept)
    back = tuple(kept.index(axis) for axis in range(len(after)))
    return _sink(rewriter, node, (source,), {"shape": shape}, back)


def _places(groups: Sequence[Group], perm: Perm, before: Shape) -> list[tuple[int, int]] | None:
    """Position of each group before the transpose; None if the axes of a group are not adjacent."""
    long = [p for p, axis in sorted((p, axis) for axis, p in enumerate(perm)) if before[axis] != 1]
    made: list[tuple[int, int]] = []
    last = -1
    for index, group in enumerate(groups):
        held = sorted(long.index(perm[axis]) for axis in group.before if before[axis] != 1)
        if held and held[-1] - held[0] != len(held) - 1:
            return None
        last = held[0] if held else last
        made.append((last, index))
    return made
