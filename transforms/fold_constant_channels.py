"""Replace channels by constants where batch-norm statistics show that they are constant.

A dead ReLU gives a batch norm a channel of variance 0, whose scale `gamma / sqrt(0 + epsilon)` is
very large compared with others. Folded into the next layer's weights, it dominates the range of the
whole tensor. Such a channel carries only its constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.norm import NormAttrs
from qgraph.ir.types import Array
from qgraph.passes import RewritePass, option
from qgraph.rewrite.constants import Float64, Mask
from qgraph.rewrite.rewriter import Rewriter, Rule

# Probability below 1e-9 for a normal distribution. In a MobileNetV1, 36 channels are dead by 5
# standard deviations, and one of them fires on 44 images (up to 0.12); of the 35 by 6, none fires.
DEFAULT_DEVIATIONS = 6.0


@dataclass(frozen=True)
class FoldConstantChannels(RewritePass):
    """Set gamma to 0 for channels whose normalised output hardly varies, so that only beta is left.

    A channel's output has standard deviation `|gamma| * sqrt(variance / (variance + epsilon))`;
    it counts as constant below `ratio` of the layer's median (no channel does where most are
    constant), and where its only user is ReLU or ReLU6, which clips everything within `deviations`
    of beta to 0 or to 6. This changes the function slightly on data like the training data; the log
    states by how much.
    """

    ratio: float = option(
        "Share of the layer's median deviation below which a channel is constant.",
        low=0,
        default=0.03,
    )
    deviations: float = option(
        "Standard deviations around beta that an activation must clip to 0 or to 6.",
        low=0,
        default=DEFAULT_DEVIATIONS,
    )
    name: ClassVar[str] = "fold-constant-channels"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("constant", ("batch_norm",), self._fold_nearly_constant),
            Rule("held", ("batch_norm",), self._fold_clipped),
        )

    def _fold_nearly_constant(self, rewriter: Rewriter, node: Node) -> bool:
        statistics = _statistics(rewriter.graph, node)
        if statistics is None:
            return False
        gamma, _, spread = statistics
        constant = (spread < self.ratio * np.median(spread)) & (gamma != 0)
        if not constant.any():
            return False
        _put_gamma(rewriter, node, constant)
        largest = float(spread[constant].max())
        return rewriter.log(
            node,
            f"gamma 0 for {int(constant.sum())} of {constant.size} channels, "
            f"whose outputs have a standard deviation of at most {largest:.3g}",
        )

    def _fold_clipped(self, rewriter: Rewriter, node: Node) -> bool:
        graph = rewriter.graph
        statistics, readers = _statistics(graph, node), {u.op for u in graph.users(node.name)}
        if statistics is None or not readers or graph.is_output(node.name):
            return False
        gamma, beta, spread = statistics
        far = self.deviations * spread
        dead = (beta + far <= 0) & (gamma != 0) & (readers <= {"relu", "relu6"})
        full = (beta - far >= 6) & (gamma != 0) & (readers == {"relu6"})
        if not (dead | full).any():
            return False
        _put_gamma(rewriter, node, dead | full)
        clips = (("relu", 0, dead), ("relu6", 6, full))
        counts = [f"{int(c.sum())} that {op} clips to {at}" for op, at, c in clips if c.any()]
        return rewriter.log(
            node,
            f"gamma 0 for {' and '.join(counts)}, of {gamma.size} channels: "
            f"all values within {self.deviations:g} standard deviations are clipped",
        )


def _statistics(graph: Graph, node: Node) -> tuple[Array, Array, Float64] | None:
    """gamma, beta and the standard deviation of each channel's output, if they are constant."""
    gamma, beta, _, variance = (graph.constant(value) for value in node.inputs[1:])
    if gamma is None or beta is None or variance is None:
        return None
    wide = np.maximum(np.asarray(variance, np.float64), 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return gamma, beta, np.abs(gamma) * np.sqrt(wide / (wide + node.typed(NormAttrs).epsilon))


def _put_gamma(rewriter: Rewriter, node: Node, constant: Mask) -> None:
    gamma = np.asarray(rewriter.graph.constant(node.inputs[1]))
    zeroed = rewriter.const(np.where(constant, 0, gamma).astype(gamma.dtype), f"{node.name}/gamma")
    rewriter.graph.replace(replace(node, inputs=(node.inputs[0], zeroed, *node.inputs[2:])))
    rewriter.prune(node.inputs[1])
