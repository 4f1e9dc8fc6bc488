"""Recognise layer norms that a graph writes out in arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Node
from qgraph.passes import Pass
from qgraph.rewrite.channel_norms import ChannelNorm, norm_at
from qgraph.rewrite.rewriter import Rewriter


@dataclass(frozen=True)
class RecognizeLayerNorm(Pass):
    """A norm over the last axis, then scale and shift, becomes `layer_norm`, whatever its form.

    A norm without a mean (RMS norm) is that of `[x, -x]`, whose mean is 0 and whose variance is the
    mean square of x; the first half of the result is taken.
    """

    name: ClassVar[str] = "recognize-layer-norm"

    def apply(self, rewriter: Rewriter) -> None:
        rewriter.rule = "written-out"
        graph = rewriter.graph
        nodes = list(graph.topological())
        order = {node.name: index for index, node in enumerate(nodes)}
        for name in (node.name for node in reversed(nodes)):  # the longest norm first
            norm = norm_at(graph, name, order) if name in graph.nodes else None
            if norm is not None:
                (_centred if norm.centred else _by_root_mean_square)(rewriter, name, norm)


def _centred(rewriter: Rewriter, name: str, norm: ChannelNorm) -> None:
    inputs = (norm.source, *_vectors(rewriter, name, norm, 1))
    attrs, control = {"epsilon": norm.epsilon}, rewriter.graph.nodes[name].control
    rewriter.put(Node(name, "layer_norm", inputs, attrs, control))


def _by_root_mean_square(rewriter: Rewriter, name: str, norm: ChannelNorm) -> None:
    graph, x = rewriter.graph, norm.source
    known = graph.types[x]
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
    rewriter.put(Node(name, "slice", (normal,), first, graph.nodes[name].control))


def _vectors(rewriter: Rewriter, name: str, norm: ChannelNorm, times: int) -> tuple[str, str]:
    dtype = np.dtype(rewriter.graph.types[norm.source].dtype)
    gamma, beta = (
        rewriter.const(np.tile(v, times).astype(dtype), f"{name}/{role}")
        for v, role in ((norm.gamma, "gamma"), (norm.beta, "beta"))
    )
    return gamma, beta
