"""Channels that batch-norm statistics show to be constant, as constants.

A dead ReLU leaves a batch norm a channel of variance 0, whose scale `gamma / sqrt(0 + epsilon)` is
then huge beside the others. Folded into the next layer's weights it takes the range of the
whole tensor. The channel is worth a constant and nothing more: here it becomes one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Node
from qgraph.passes import RewritePass
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class FoldConstantChannels(RewritePass):
    """Give gamma 0 to channels whose normalised output hardly varies: beta is all they say.

    A channel's output has standard deviation `|gamma| * sqrt(variance / (variance + epsilon))`;
    it is taken for constant below `ratio` of the layer's median. Changes the function by as
    much, on data like the training data; the log says by how much. Where most channels of a
    layer are constant, none is.
    """

    ratio: float = 0.03
    name: ClassVar[str] = "fold-constant-channels"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("constant", ("batch_norm",), self._fold),)

    def _fold(self, rewriter: Rewriter, node: Node) -> bool:
        graph = rewriter.graph
        gamma, _, _, variance = (graph.constant(value) for value in node.inputs[1:])
        if gamma is None or variance is None:
            return False
        wide = np.maximum(np.asarray(variance, np.float64), 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = np.abs(gamma) * np.sqrt(wide / (wide + node.attrs["epsilon"]))
        constant = (spread < self.ratio * np.median(spread)) & (np.asarray(gamma) != 0)
        if not constant.any():
            return False
        zeroed = np.where(constant, 0, gamma).astype(gamma.dtype)
        kept = rewriter.const(zeroed, f"{node.name}/gamma")
        graph.replace(replace(node, inputs=(node.inputs[0], kept, *node.inputs[2:])))
        rewriter.prune(node.inputs[1])
        largest = float(spread[constant].max())
        return rewriter.log(
            node,
            f"gamma 0 for {int(constant.sum())} of {constant.size} channels, "
            f"whose outputs have a standard deviation of at most {largest:.3g}",
        )
