"""Compute values that depend only on constants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import OPS
from qgraph.ir.ops.attributes import AxesAttrs
from qgraph.ir.ops.movement import TargetAttrs
from qgraph.ir.ops.structure import OpaqueAttrs
from qgraph.ir.types import Array
from qgraph.passes import RewritePass
from qgraph.rewrite.constants import computed
from qgraph.rewrite.rewriter import Rewriter, Rule

MAX_BYTES = 16 * 2**20
# A quantizer of a constant belongs to its layer; an identity may carry control edges.
NOT_FOLDED = ("input", "const", "identity", "quantize", "lookup")


@dataclass(frozen=True)
class FoldConstants(RewritePass):
    """Replace a node whose inputs are all constants by a constant of the same name.

    Float arithmetic is done in float64 and rounded once. Unknown ops are computed by TensorFlow or
    ONNX. A tensor of equal numbers for each sample, `min(max(x, c), c)` as importers write
    `ones_like`, becomes one for all samples where arithmetic broadcasts it. Refusals: a result
    that is larger than its inputs and than 16 MiB; control edges; an op that has state.
    """

    name: ClassVar[str] = "fold-constants"

    def rules(self) -> tuple[Rule, ...]:
        folded = tuple(name for name, op in OPS.items() if op.evaluate and name not in NOT_FOLDED)
        return (Rule("fold", folded, _fold), Rule("fill", ("minimum",), _fill))


def _fold(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    inputs = [c for value in node.inputs if (c := graph.constant(value)) is not None]
    if len(inputs) < len(node.inputs) or any(graph.types[v].dtype == "string" for v in node.inputs):
        return False
    if node.control or graph.control_users(node.name):
        return rewriter.refuse(node, "it has control edges")
    if node.op == "opaque":
        return _fold_opaque(rewriter, node, inputs)
    if _is_too_large(rewriter, node, inputs):
        return False
    value = computed(node, inputs, graph.types[node.name].dtype)
    return rewriter.put(Node(node.name, "const", attrs={"value": value}))


def _fold_opaque(rewriter: Rewriter, node: Node, inputs: list[Array]) -> bool:
    """Compute an unknown op by TensorFlow or ONNX."""
    graph, attrs = rewriter.graph, node.typed(OpaqueAttrs)
    kind, source = attrs.kind, attrs.source
    if source is None or not source.pure:
        return rewriter.refuse(node, f"`{kind}` has state, such as random numbers")
    shapes = [graph.types[value].shape for value in node.values]
    if any(shape is None or None in shape for shape in shapes):
        return rewriter.refuse(node, "the size of its result is unknown")
    if _is_too_large(rewriter, node, inputs):
        return False
    results = source.run(inputs)
    if node.outputs == 1:
        return rewriter.put(Node(node.name, "const", attrs={"value": results}))
    used = [pair for pair in zip(node.values, results, strict=True) if graph.use_count(pair[0])]
    for value, result in used:
        made = rewriter.const(np.asarray(result), graph.fresh(f"{node.name}/folded"))
        rewriter.replace_value(value, made)
    return bool(used)


def _fill(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    number = _number_everywhere(graph, node)
    known = graph.types[node.name]
    sizes = [d or 0 for d in (known.shape or ())[1:]]
    if number is None or not known.shape or known.shape[0] is not None or 0 in sizes:
        return False
    if node.control or graph.control_users(node.name) or not _is_broadcast(graph, node.name):
        return False
    value = np.broadcast_to(np.asarray(number, known.dtype), (1, *sizes))
    return rewriter.put(Node(node.name, "const", attrs={"value": value}))


def _number_everywhere(graph: Graph, node: Node) -> float | None:
    """c if a node is `minimum(maximum(x, c), c)`."""
    above, bound = node.inputs
    inner, limit = graph.producer(above), graph.constant(bound)
    if inner.op != "maximum" or limit is None or limit.size != 1:
        return None
    return float(limit.reshape(())) if inner.inputs[1] == bound else None


def _is_broadcast(graph: Graph, value: str) -> bool:
    """Whether results stay the same if `value` has one sample for all.

    Then everything computed from it alone has one, until arithmetic joins it with all samples.
    """
    alone, waiting = {value}, [value]
    while waiting:
        current = waiting.pop()
        if graph.is_output(current):
            return False
        for user in graph.users(current):
            kind, shape = OPS[user.op], graph.types[user.name].shape
            if user.name in alone:
                continue
            if kind.elementwise or user.op == "bias_add":
                if any(graph.types[v].shape == shape for v in user.inputs if v not in alone):
                    continue
            elif user.op == "reshape":
                if user.typed(TargetAttrs).shape[:1] != (-1,) or not shape or None in shape[1:]:
                    return False
            elif user.op not in ("mean", "sum") or _over_samples(graph, user):
                return False
            alone.add(user.name)
            waiting.append(user.name)
    return True


def _over_samples(graph: Graph, node: Node) -> bool:
    rank = graph.types[node.inputs[0]].rank or 1
    return 0 in {axis % rank for axis in node.typed(AxesAttrs).axes}


def _is_too_large(rewriter: Rewriter, node: Node, inputs: list[Array]) -> bool:
    before, after = sum(c.nbytes for c in inputs), _size_of_result(rewriter.graph, node)
    if after <= max(before, MAX_BYTES):
        return False
    rewriter.refuse(node, f"the result takes {after} bytes, its inputs only {before}")
    return True


def _size_of_result(graph: Graph, node: Node) -> int:
    kinds = [graph.types[value] for value in node.values]
    return sum(
        math.prod(d or 0 for d in kind.shape or ()) * np.dtype(kind.dtype).itemsize
        for kind in kinds
    )
