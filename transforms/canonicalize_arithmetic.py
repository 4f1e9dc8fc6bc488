"""One way to write a sum, a product and a bias."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array
from qgraph.passes import RewritePass
from qgraph.rewrite.constants import channel_vector, channels_of, is_layer, other_users
from qgraph.rewrite.rewriter import Rewriter, Rule
from qgraph.transforms.splice_identities import NEUTRAL


@dataclass(frozen=True)
class CanonicalizeArithmetic(RewritePass):
    """x - c, x / c and -x become sums and products; a vector added to a layer its bias.

    New constants are computed in float64 and rounded once, so that a division becomes a product
    up to rounding. Refusals: a division by zero; two biases with a reader in between.
    """

    name: ClassVar[str] = "canonicalize-arithmetic"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("sub-to-add", ("sub",), _sub),
            Rule("div-to-mul", ("div",), _div),
            Rule("neg-to-mul", ("neg",), _neg),
            NEUTRAL,  # where constants that were folded turn out so
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


def _bias(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    for x, other in (node.inputs, node.inputs[::-1]):
        producer = graph.producer(x)
        vector = channel_vector(graph, other, channels_of(graph, x))
        biased = producer.op == "bias_add" and graph.use_count(x) == 1
        if vector is None or not (is_layer(producer) or biased):
            continue
        if graph.types[x] != graph.types[node.name]:
            return rewriter.refuse(node, f"adding `{other}` widens `{x}`: it is no bias")
        array = graph.constant(other)
        is_vector = array is not None and array.shape == vector.shape
        bias = other if is_vector else rewriter.const(vector.copy(), f"{node.name}/bias")
        return rewriter.put(replace(node, op="bias_add", inputs=(x, bias)))
    return False


def _merge_biases(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    first = graph.producer(node.inputs[0])
    if first.op != "bias_add":
        return False
    biases = [graph.constant(first.inputs[1]), graph.constant(node.inputs[1])]
    if biases[0] is None or biases[1] is None:
        return False
    if users := other_users(graph, first.name, node.name):
        return rewriter.refuse(node, f"cannot join the bias before it: {users}")
    total = biases[0].astype(np.float64) + biases[1].astype(np.float64)
    bias = rewriter.const(total.astype(biases[1].dtype), f"{node.name}/sum_of_biases")
    return rewriter.put(replace(node, inputs=(first.inputs[0], bias)))


BIAS_RULES = (
    Rule("add-to-bias", ("add",), _bias),
    Rule("merge-biases", ("bias_add",), _merge_biases),
)
