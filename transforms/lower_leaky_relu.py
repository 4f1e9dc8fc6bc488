"""Write leaky ReLU as a maximum, which fixed point can compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops.activation import LeakyReluAttrs
from qgraph.passes import RewritePass
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class LowerLeakyRelu(RewritePass):
    """`leaky_relu(x)` becomes `maximum(x, alpha * x)` (docs/numerics.md, 3).

    Refusal: a slope outside [0, 1], where the maximum would select the other branch.
    """

    name: ClassVar[str] = "lower-leaky-relu"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("lower", ("leaky_relu",), _lower),)


def _lower(rewriter: Rewriter, node: Node) -> bool:
    x, alpha = node.inputs[0], node.typed(LeakyReluAttrs).alpha
    if not 0 <= alpha <= 1:
        return rewriter.refuse(
            node, f"slope {alpha} is outside [0, 1], so max(x, slope*x) does not equal leaky_relu"
        )
    if alpha == 0:
        return rewriter.put(Node(node.name, "relu", (x,), control=node.control))
    slope = np.asarray(alpha, np.dtype(rewriter.graph.types[x].dtype))
    slope_value = rewriter.const(slope, f"{node.name}/alpha")
    scaled = rewriter.add("mul", x, slope_value, name=f"{node.name}/scaled")
    return rewriter.put(Node(node.name, "maximum", (x, scaled), control=node.control))
