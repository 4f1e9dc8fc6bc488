"""Write sums, products and biases in one form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array
from qgraph.passes import RewritePass
from qgraph.rewrite.arithmetic_rules import BIAS_RULES, NEUTRAL
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class CanonicalizeArithmetic(RewritePass):
    """x - c, x / c and -x become sums and products; a vector added to a layer becomes its bias.

    New constants are computed in float64 and rounded once, so that a division becomes a product
    up to rounding. Refusals: a division by zero; two biases of which the first has other users.
    """

    name: ClassVar[str] = "canonicalize-arithmetic"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("sub-to-add", ("sub",), _sub),
            Rule("div-to-mul", ("div",), _div),
            Rule("neg-to-mul", ("neg",), _neg),
            NEUTRAL,  # folded constants may turn out to be these
            *BIAS_RULES,
        )


def _float_constant(graph: Graph, value: str) -> Array | None:
    return graph.constant(value) if graph.types[value].is_float else None


def _sub(rewriter: Rewriter, node: Node) -> bool:
    constant = _float_constant(rewriter.graph, node.inputs[1])
    if constant is None:
        return False
    negated = rewriter.const(-constant, f"{node.inputs[1]}/negated")
    return rewriter.put(replace(node, op="add", inputs=(node.inputs[0], negated)))


def _div(rewriter: Rewriter, node: Node) -> bool:
    constant = _float_constant(rewriter.graph, node.inputs[1])
    if constant is None:
        return False
    with np.errstate(divide="ignore", over="ignore"):
        inverse = (1 / constant.astype(np.float64)).astype(constant.dtype)
    if not np.isfinite(inverse).all():
        return rewriter.refuse(node, f"`{node.inputs[1]}` has elements without a finite reciprocal")
    factor = rewriter.const(inverse, f"{node.inputs[1]}/reciprocal")
    return rewriter.put(replace(node, op="mul", inputs=(node.inputs[0], factor)))


def _neg(rewriter: Rewriter, node: Node) -> bool:
    known = rewriter.graph.types[node.inputs[0]]
    if not known.is_float:
        return False
    minus_one = rewriter.const(np.asarray(-1, np.dtype(known.dtype)), f"{node.name}/minus_one")
    return rewriter.put(replace(node, op="mul", inputs=(node.inputs[0], minus_one)))
