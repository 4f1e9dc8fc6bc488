"""Recognise softmaxes that a graph writes out in arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.ops.attributes import AxesAttrs, AxisAttrs
from qgraph.ir.ops.structure import OpaqueAttrs
from qgraph.ir.types import Array, Shape
from qgraph.passes import RewritePass
from qgraph.quant.topology import behind_layers
from qgraph.rewrite.masks import (
    EXCLUDED,
    FAR,
    OF_INTEGERS,
    SUMS,
    masked_scores,
    masks_all,
    only_for,
    softmaxes_of,
)
from qgraph.rewrite.rewriter import Rewriter, Rule

RESHAPES = ("reshape", "expand_dims", "squeeze", "identity")


@dataclass(frozen=True)
class RecognizeSoftmax(RewritePass):
    """exp(x) / sum(exp(x)) over the last axis becomes `softmax`, also where x has its largest
    element subtracted first; x - log(sum(exp(x))) and the logarithm of a softmax, `log_softmax`.

    JAX and some exporters to ONNX write softmaxes like this. Outputs behind a recognized one are
    compared at its input. Softmaxes over other axes stay as they are. A `select` that puts a large
    negative number in place of scores becomes an addend, a mask, if its condition is
    constant; an addend of a computed condition, or of integers 0 and 1, a `select`; an addend that
    is a mask and a bias, two addends. Refusal: a node with control edges.
    """

    name: ClassVar[str] = "recognize-softmax"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("written-out", ("div", "mul"), _softmax),
            Rule("written-out-log", ("sub",), _log_softmax),
            Rule("log", ("log",), _log_of_softmax),
            Rule("mask", ("select",), _mask),
            Rule("mask-of-inputs", ("add",), _mask_of_inputs),
            Rule("mask-and-bias", SUMS, _mask_and_bias),
        )


def _softmax(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    exponential = next((v for v in node.inputs if graph.producer(v).op == "exp"), None)
    if exponential is None or not _divides(graph, node, exponential):
        return False
    return _put(rewriter, node, "softmax", graph.producer(exponential).inputs[0])


def _log_softmax(rewriter: Rewriter, node: Node) -> bool:
    graph, (x, logarithm) = rewriter.graph, node.inputs
    whole = graph.types[x].shape
    if not whole or graph.types[logarithm].shape != (*whole[:-1], 1):
        return False
    log = _behind_reshapes(graph, logarithm, whole[:-1])
    total = _behind_reshapes(graph, log.inputs[0], whole[:-1]) if log.op == "log" else log
    if total is log or total.op != "sum":
        return False
    exponential = graph.producer(total.inputs[0])
    if (exponential.op, exponential.inputs) != ("exp", (x,)):
        return False
    return _reduces(graph, total, exponential.name) and _put(rewriter, node, "log_softmax", x)


def _log_of_softmax(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    softmax, rank = graph.producer(node.inputs[0]), graph.types[node.name].rank
    if softmax.op != "softmax" or rank is None:
        return False
    if softmax.typed(AxisAttrs).axis % rank != rank - 1:
        return False
    return _put(rewriter, node, "log_softmax", softmax.inputs[0])


def _mask(rewriter: Rewriter, node: Node) -> bool:
    graph, (condition, yes, no) = rewriter.graph, node.inputs
    chosen = _known_condition(graph, condition)
    for scores, other, masked in ((yes, no, False), (no, yes, True)):
        number = _addend(graph, other, scores)
        if number is None or (number > EXCLUDED).any():
            continue
        same = graph.types[scores] == graph.types[node.name]
        if not same or not only_for(graph, node.name, softmaxes_of(graph)):
            return False
        if chosen is None or masks_all(graph, node.name, chosen == masked):
            return _put_far(rewriter, node, other)
        addend = np.where(chosen == masked, number.dtype.type(FAR), number.dtype.type(0))
        mask = rewriter.const(addend, f"{node.name}/mask")
        return rewriter.put(Node(node.name, "add", (scores, mask), control=node.control))
    return False


def _put_far(rewriter: Rewriter, node: Node, other: str) -> bool:
    """A computed condition selects one number in place of scores, not scores with an addend."""
    if rewriter.graph.constant(other) is not None:
        return False
    far = rewriter.const(np.asarray(FAR, rewriter.graph.types[other].dtype), f"{node.name}/far")
    inputs = tuple(far if value == other else value for value in node.inputs)
    return rewriter.put(replace(node, inputs=inputs))


def _mask_of_inputs(rewriter: Rewriter, node: Node) -> bool:
    """scores + (1 - mask) * number, for a mask that is computed, becomes a `select`."""
    graph = rewriter.graph
    for scores, addend in (node.inputs, node.inputs[::-1]):
        mask = _mask_before(graph, addend)
        if mask is None or graph.types[scores] != graph.types[node.name]:
            continue
        if node_of(mask) in behind_layers(graph):
            continue
        if not only_for(graph, node.name, softmaxes_of(graph)):
            return False
        far = rewriter.const(np.asarray(FAR, graph.types[scores].dtype), f"{node.name}/far")
        inputs = (_as_condition(rewriter, mask, node.name), scores, far)
        return rewriter.put(Node(node.name, "select", inputs, control=node.control))
    return False


def _as_condition(rewriter: Rewriter, mask: str, name: str) -> str:
    """A mask as a condition; integers of a mask are 0 and 1."""
    kind = rewriter.graph.types[mask].dtype
    if kind == "bool":
        return mask
    zero = rewriter.const(np.zeros((), kind), f"{name}/zero")
    return rewriter.add("not_equal", mask, zero, name=f"{name}{OF_INTEGERS}")


def _mask_before(graph: Graph, value: str) -> str | None:
    """The mask that keeps scores, conditions or integers 0 and 1, if `value` is 0 where it keeps
    them, else a large number.
    """
    product = graph.producer(value)
    for opposite, number in (product.inputs, product.inputs[::-1]) if product.op == "mul" else ():
        size, rest = graph.constant(number), graph.producer(opposite)
        if size is None or size.size != 1 or size > EXCLUDED or rest.op != "sub":
            continue
        one, cast = graph.constant(rest.inputs[0]), graph.producer(rest.inputs[1])
        if one is None or not (one == 1).all() or cast.op != "cast":
            continue
        if not graph.types[cast.inputs[0]].is_float:
            return cast.inputs[0]
    return None


def _addend(graph: Graph, value: str, scores: str) -> Array | None:
    """The number in place of scores, or that is added to them instead."""
    node = graph.producer(value)
    if node.op in ("add", "sub") and node.inputs[0] == scores:
        number = graph.constant(node.inputs[1])
        return -number if number is not None and node.op == "sub" else number
    return graph.constant(value)


def _known_condition(graph: Graph, value: str) -> Array | None:
    """A constant condition, up to axes along which it repeats, also one that Keras 3 joins."""
    node = graph.producer(value)
    if node.op == "logical_and":
        parts = [_known_condition(graph, part) for part in node.inputs]
        return None if parts[0] is None or parts[1] is None else parts[0] & parts[1]
    if isinstance(node.attributes, OpaqueAttrs) and node.attributes.kind == "Fill":
        return graph.constant(node.inputs[1])
    return graph.constant(value)


def _mask_and_bias(rewriter: Rewriter, node: Node) -> bool:
    """A mask is added separately, so that it is neither a bias nor on the scale of one."""
    found = masked_scores(rewriter.graph, node, softmaxes_of(rewriter.graph))
    if found is None or (node.op == "add" and not found[2].any()):
        return False
    scores, far, rest = found
    if rest.any():
        bias = rewriter.const(rest, f"{node.name}/bias")
        scores = rewriter.add(node.op, scores, bias, name=f"{node.name}/biased")
    mask = rewriter.const(far, f"{node.name}/mask")
    return rewriter.put(Node(node.name, "add", (scores, mask), control=node.control))


def _put(rewriter: Rewriter, node: Node, op: str, shifted: str) -> bool:
    """`node` becomes a softmax, or its logarithm, of `shifted` before its shift."""
    graph = rewriter.graph
    source = _unshifted(graph, shifted)
    if graph.types[source] != graph.types[node.name]:
        return False
    if node.control or graph.control_users(node.name):
        return rewriter.refuse(node, "it has control edges")
    return rewriter.put(Node(node.name, op, (source,), {"axis": -1}))


def _divides(graph: Graph, node: Node, exponential: str) -> bool:
    """Whether a node divides `exponential` by its own sum over the last axis."""
    other = node.inputs[1 - node.inputs.index(exponential)]
    if node.op == "mul":
        inverse = graph.producer(other)
        return inverse.op == "reciprocal" and _is_reduced(
            graph, inverse.inputs[0], "sum", exponential
        )
    return node.inputs[0] == exponential and _is_reduced(graph, other, "sum", exponential)


def _unshifted(graph: Graph, value: str) -> str:
    """x, if `value` is x less its largest element, which does not change a softmax."""
    node = graph.producer(value)
    if node.op != "sub" or not _is_reduced(graph, node.inputs[1], "reduce_max", node.inputs[0]):
        return value
    return node.inputs[0]


def _is_reduced(graph: Graph, value: str, op: str, source: str) -> bool:
    """Whether `value` is `source` reduced by `op` over the last axis, which stays with size 1."""
    whole = graph.types[source].shape
    if not whole or graph.types[value].shape != (*whole[:-1], 1):
        return False
    node = _behind_reshapes(graph, value, whole[:-1])
    return node.op == op and _reduces(graph, node, source)


def _behind_reshapes(graph: Graph, value: str, rows: Shape) -> Node:
    """The producer of one number for each of `rows`, before moves that only add or remove axes."""
    node = graph.producer(value)
    while node.op in RESHAPES and graph.types[node.name].shape in ((*rows, 1), rows):
        node = graph.producer(node.inputs[0])
    return node


def _reduces(graph: Graph, node: Node, source: str) -> bool:
    """Whether a reduction takes `source` and reduces its last axis only."""
    rank = graph.types[source].rank or 0
    axes = tuple(axis % rank for axis in node.typed(AxesAttrs).axes) if rank else ()
    return node.inputs[0] == source and axes == (rank - 1,)
