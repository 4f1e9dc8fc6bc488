"""Recognise layer norms that a graph writes out in arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Attrs, Node
from qgraph.ir.types import Shape
from qgraph.passes import Pass
from qgraph.rewrite.channel_norms import ChannelNorm, norm_at, norm_axes
from qgraph.rewrite.constants import Float64
from qgraph.rewrite.rewriter import Rewriter

Made = tuple[str, tuple[str, ...], Attrs]  # op, inputs and attributes of a node


@dataclass(frozen=True)
class RecognizeLayerNorm(Pass):
    """A norm over some axes, then scale and shift, becomes `layer_norm`, whatever its form.

    One over another axis than the last gets transposes around it, one over several axes (instance
    and group norms) reshapes that join them; norms over the first axis, the batch, stay as they
    are. A norm without a mean (RMS and L2 norms) is that of `[x, -x]`, whose mean is 0 and whose
    variance is the mean square of x; the first half of the result is taken.
    """

    name: ClassVar[str] = "recognize-layer-norm"

    def apply(self, rewriter: Rewriter) -> None:
        rewriter.rule = "written-out"
        graph = rewriter.graph
        nodes = list(graph.topological())
        order = {node.name: index for index, node in enumerate(nodes)}
        names = [node.name for node in reversed(nodes)]  # the longest norm first
        for axes in norm_axes(graph):
            for name in names:
                norm = norm_at(graph, name, axes, order) if name in graph.nodes else None
                if norm is not None:
                    _put(rewriter, name, norm)


def _put(rewriter: Rewriter, name: str, norm: ChannelNorm) -> None:
    graph = rewriter.graph
    whole, control = graph.types[norm.source].shape or (), graph.nodes[name].control
    axes = tuple(range(len(whole)))
    along = _varied(norm.gamma) | _varied(norm.beta)
    if len(norm.axes) > 1 or not along <= {*norm.axes}:
        if None not in whole[1:]:
            _joined(rewriter, name, norm, along)
        return
    (axis,) = norm.axes
    if axis == axes[-1]:
        op, inputs, attrs = _of_last_axis(rewriter, name, norm.source, norm)
    else:
        moved = (*axes[:axis], *axes[axis + 1 :], axis)
        to_last = {"perm": moved}
        x = rewriter.add("transpose", norm.source, name=f"{name}/channels_last", attrs=to_last)
        op, inputs, attrs = _of_last_axis(rewriter, name, x, norm)
        inputs = (rewriter.add(op, *inputs, name=f"{name}/normal", attrs=attrs),)
        op, attrs = "transpose", {"perm": tuple(moved.index(axis) for axis in axes)}
    rewriter.put(Node(name, op, inputs, attrs, control))


def _varied(values: Float64) -> set[int]:
    return {axis for axis, size in enumerate(values.shape) if size > 1}


def _joined(rewriter: Rewriter, name: str, norm: ChannelNorm, along: set[int]) -> None:
    """Over several axes, joined to the last one; parameters along other axes follow the norm."""
    graph = rewriter.graph
    whole: Shape = graph.types[norm.source].shape or ()
    sizes, control = [int(d or 0) for d in whole[1:]], graph.nodes[name].control
    others = tuple(axis for axis in range(1, len(whole)) if axis not in norm.axes)
    moved = (0, *others, *norm.axes)
    apart, x = tuple(sizes[axis - 1] for axis in moved[1:]), norm.source
    inside = along <= {*norm.axes}
    if moved != tuple(range(len(whole))):
        x = rewriter.add("transpose", x, name=f"{name}/axes_last", attrs={"perm": moved})
    rows = (*apart[: len(others)], math.prod(apart[len(others) :]))
    x = rewriter.add("reshape", x, name=f"{name}/rows", attrs={"shape": (-1, *rows)})
    op, inputs, attrs = _of_last_axis(rewriter, name, x, norm, plain=not inside)
    x = rewriter.add(op, *inputs, name=f"{name}/normal", attrs=attrs)
    x = rewriter.add("reshape", x, name=f"{name}/apart", attrs={"shape": (-1, *apart)})
    if moved != tuple(range(len(whole))):
        back = {"perm": tuple(moved.index(axis) for axis in range(len(whole)))}
        x = rewriter.add("transpose", x, name=f"{name}/axes_back", attrs=back)
    if not inside:
        x = _scaled(rewriter, name, x, norm, min(along))
    target = tuple(-1 if d is None else d for d in whole)
    rewriter.put(Node(name, "reshape", (x,), {"shape": target}, control))


def _scaled(rewriter: Rewriter, name: str, x: str, norm: ChannelNorm, first: int) -> str:
    """Scale and shift, with the axes from `first` on joined, so that both are vectors."""
    known = rewriter.graph.types[x]
    sizes = [int(d or 0) for d in (known.shape or ())[1:]]
    shape, dtype = sizes[first - 1 :], np.dtype(known.dtype)
    target = (-1, *sizes[: first - 1], math.prod(shape))
    x = rewriter.add("reshape", x, name=f"{name}/channels", attrs={"shape": target})
    for op, role, values in (("mul", "gamma", norm.gamma), ("bias_add", "beta", norm.beta)):
        vector = np.broadcast_to(values.reshape(values.shape[first:]), shape).reshape(-1)
        constant = rewriter.const(vector.astype(dtype), f"{name}/{role}")
        x = rewriter.add(op, x, constant, name=f"{name}/{op}")
    return x


def _of_last_axis(
    rewriter: Rewriter, name: str, x: str, norm: ChannelNorm, *, plain: bool = False
) -> Made:
    """The norm over the last axis of `x`; `plain` without scale and shift."""
    if norm.centred:
        vectors = _vectors(rewriter, name, norm, 1, plain)
        return "layer_norm", (x, *vectors), {"epsilon": norm.epsilon}
    return _by_root_mean_square(rewriter, name, x, norm, plain)


def _by_root_mean_square(
    rewriter: Rewriter, name: str, x: str, norm: ChannelNorm, plain: bool
) -> Made:
    known = rewriter.graph.types[x]
    rank, channels = known.rank or 0, (known.shape or (None,))[-1]
    minus = rewriter.const(np.asarray(-1, np.dtype(known.dtype)), f"{name}/minus_one")
    mirrored = rewriter.add("mul", x, minus, name=f"{name}/mirrored")
    both = rewriter.add("concat", x, mirrored, name=f"{name}/both", attrs={"axis": rank - 1})
    vectors = _vectors(rewriter, name, norm, 2, plain)
    attrs = {"epsilon": norm.epsilon}
    normal = rewriter.add("layer_norm", both, *vectors, name=f"{name}/norm", attrs=attrs)
    first = {
        "begin": (None,) * rank,
        "end": (*(None,) * (rank - 1), channels),
        "strides": (1,) * rank,
    }
    return "slice", (normal,), first


def _vectors(
    rewriter: Rewriter, name: str, norm: ChannelNorm, times: int, plain: bool
) -> tuple[str, str]:
    """Scale and shift, as often as the normalized axes are repeated."""
    known = rewriter.graph.types[norm.source]
    shape = [(known.shape or ())[axis] or 0 for axis in norm.axes]

    def vector(values: Float64) -> Float64:
        own = values.reshape([values.shape[axis] for axis in norm.axes])
        return np.tile(np.broadcast_to(own, shape).reshape(-1), times)

    count = times * math.prod(shape)
    made = (np.ones(count), np.zeros(count)) if plain else (vector(norm.gamma), vector(norm.beta))
    gamma, beta = (
        rewriter.const(values.astype(np.dtype(known.dtype)), f"{name}/{role}")
        for values, role in zip(
            made, ("scale", "shift") if plain else ("gamma", "beta"), strict=True
        )
    )
    return gamma, beta
