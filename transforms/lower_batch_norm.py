"""Write batch norms that could not be folded as separate layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops.windows import PaddingRule
from qgraph.passes import RewritePass
from qgraph.rewrite.constants import batch_norm_affine, batch_norm_moments, not_constant
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class LowerBatchNorm(RewritePass):
    """A batch norm becomes a 1x1 depthwise convolution (a product, if not of rank 4) and a bias.

    The scaling node carries `batch_norm=True`; the moments of its input and output are kept in
    `Graph.moments`. Refusals: statistics that are not constant; a
    scale that is not finite.
    """

    name: ClassVar[str] = "lower-batch-norm"
    ensures: ClassVar[frozenset[str]] = frozenset({"batch-norm-folded", "batch-norm-lowered"})

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("lower", ("batch_norm",), _lower),)


def _lower(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    affine = batch_norm_affine(graph, node)
    if affine is None:
        return rewriter.refuse(node, not_constant(graph, "its statistics", *node.inputs[1:]))
    x, dtype = node.inputs[0], np.dtype(graph.types[node.inputs[1]].dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        scale, shift = affine.scale.astype(dtype), affine.shift.astype(dtype)
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        return rewriter.refuse(node, "gamma / sqrt(variance + epsilon) is not finite")
    moments = batch_norm_moments(graph, node)
    assert moments is not None
    graph.moments[x], graph.moments[node.name] = moments
    name, marked = f"{node.name}/scale", {"batch_norm": True}
    if graph.types[x].rank == 4:
        weights = rewriter.const(scale.reshape(1, 1, -1, 1), f"{name}/weights")
        attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": PaddingRule.VALID, **marked}
        scaled = rewriter.add("depthwise_conv2d", x, weights, name=name, attrs=attrs)
    else:
        weights = rewriter.const(scale, f"{name}/weights")
        scaled = rewriter.add("mul", x, weights, name=name, attrs=marked)
    bias = rewriter.const(shift, f"{node.name}/bias")
    return rewriter.put(Node(node.name, "bias_add", (scaled, bias), control=node.control))
