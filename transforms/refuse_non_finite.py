"""Refuse parameters that are NaN or infinite: no fixed-point code represents them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.errors import ExactnessError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.ops.norm import NormAttrs
from qgraph.passes import Pass
from qgraph.rewrite.constants import batch_norm_affine
from qgraph.rewrite.rewriter import Rewriter

PARAMETERS = (*COMPUTE, "bias_add", "mul", "batch_norm", "layer_norm")
# Infinity is valid here: the open end of a clip, or a mask before a softmax. NaN is not.
OPERANDS = ("add", "sub", "div", "maximum", "minimum", "concat")
HINT = "check how the float network was trained or exported"


@dataclass(frozen=True)
class RefuseNonFinite(Pass):
    """Raise ExactnessError at a layer whose constants are not finite.

    Also at a batch norm whose variance plus epsilon is not positive. The graph is not changed.
    Calibration checks the other constants that it quantizes.
    """

    name: ClassVar[str] = "refuse-non-finite"

    def apply(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        for node in graph.topological():
            if node.op in (*PARAMETERS, *OPERANDS):
                for value in node.inputs:
                    _check(graph, node, value)
            if node.op == "batch_norm":
                _check_scale(graph, node)


def _check(graph: Graph, node: Node, value: str) -> None:
    constant = graph.constant(value)
    if constant is None or constant.dtype.kind != "f":
        return
    bad = ~np.isfinite(constant) if node.op in PARAMETERS else np.isnan(constant)
    if not bad.any():
        return
    first = np.argwhere(bad)[0]
    place = f" at {[int(i) for i in first]}" if constant.ndim else ""
    what = "NaN" if np.isnan(constant[tuple(first)]) else "infinite"
    raise ExactnessError(f"its constant `{value}` is {what}{place}", node=node.name, hint=HINT)


def _check_scale(graph: Graph, node: Node) -> None:
    affine = batch_norm_affine(graph, node)
    if affine is None or affine.is_finite:
        return
    channel = int(np.argwhere(~np.isfinite(affine.scale + affine.shift))[0][-1])
    variance = graph.constant(node.inputs[4])
    assert variance is not None
    raise ExactnessError(
        f"gamma / sqrt(variance + epsilon) is not finite in channel {channel}: the variance is "
        f"{variance[channel]:g}, epsilon {node.typed(NormAttrs).epsilon:g}",
        node=node.name,
        hint=HINT,
    )
