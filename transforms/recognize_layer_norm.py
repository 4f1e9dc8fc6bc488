"""Recognise layer norms that a graph writes out in arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Attrs, Node
from qgraph.passes import Pass
from qgraph.rewrite.channel_norms import ChannelNorm, norm_at, norm_axes
from qgraph.rewrite.rewriter import Rewriter

Made = tuple[str, tuple[str, ...], Attrs]  # op, inputs and attributes of a node


@dataclass(frozen=True)
class RecognizeLayerNorm(Pass):
    """A norm over an axis, then scale and shift, becomes `layer_norm`, whatever its form.

    One over another axis than the last gets transposes around it; norms over the first axis, the
    batch, stay as they are. A norm without a mean (RMS norm) is that of `[x, -x]`, whose mean is 0
    and whose variance is the mean square of x; the first half of the result is taken.
    """

    name: ClassVar[str] = "recognize-layer-norm"

    def apply(self, rewriter: Rewriter) -> None:
        rewriter.rule = "written-out"
        graph = rewriter.graph
        nodes = list(graph.topological())
        order = {node.name: index for index, node in enumerate(nodes)}
        names = [node.name for node in reversed(nodes)]  # the longest norm first
        for axis in norm_axes(graph):
            for name in names:
                norm = norm_at(graph, name, axis, order) if name in graph.nodes else None
                if norm is not None:
                    _put(rewriter, name, norm)


def _put(rewriter: Rewriter, name: str, norm: ChannelNorm) -> None:
    graph = rewriter.graph
    axes, control = tuple(range(graph.types[norm.source].rank or 0)), graph.nodes[name].control
    norm_of = _centred if norm.centred else _by_root_mean_square
    if norm.axis == axes[-1]:
        op, inputs, attrs = norm_of(rewriter, name, norm.source, norm)
    else:
        moved = (*axes[: norm.axis], *axes[norm.axis + 1 :], norm.axis)
        to_last = {"perm": moved}
        x = rewriter.add("transpose", norm.source, name=f"{name}/channels_last", attrs=to_last)
        op, inputs, attrs = norm_of(rewriter, name, x, norm)
        inputs = (rewriter.add(op, *inputs, name=f"{name}/normal", attrs=attrs),)
        op, attrs = "transpose", {"perm": tuple(moved.index(axis) for axis in axes)}
    rewriter.put(Node(name, op, inputs, attrs, control))


def _centred(rewriter: Rewriter, name: str, x: str, norm: ChannelNorm) -> Made:
    return "layer_norm", (x, *_vectors(rewriter, name, norm, 1)), {"epsilon": norm.epsilon}


def _by_root_mean_square(rewriter: Rewriter, name: str, x: str, norm: ChannelNorm) -> Made:
    known = rewriter.graph.types[x]
    rank, channels = known.rank or 0, len(norm.gamma)
    minus = rewriter.const(np.asarray(-1, np.dtype(known.dtype)), f"{name}/minus_one")
    mirrored = rewriter.add("mul", x, minus, name=f"{name}/mirrored")
    both = rewriter.add("concat", x, mirrored, name=f"{name}/both", attrs={"axis": rank - 1})
    vectors = _vectors(rewriter, name, norm, 2)
    attrs = {"epsilon": norm.epsilon}
    normal = rewriter.add("layer_norm", both, *vectors, name=f"{name}/norm", attrs=attrs)
    first = {
        "begin": (None,) * rank,
        "end": (*(None,) * (rank - 1), channels),
        "strides": (1,) * rank,
    }
    return "slice", (normal,), first


def _vectors(rewriter: Rewriter, name: str, norm: ChannelNorm, times: int) -> tuple[str, str]:
    dtype = np.dtype(rewriter.graph.types[norm.source].dtype)
    gamma, beta = (
        rewriter.const(np.tile(v, times).astype(dtype), f"{name}/{role}")
        for v, role in ((norm.gamma, "gamma"), (norm.beta, "beta"))
    )
    return gamma, beta
