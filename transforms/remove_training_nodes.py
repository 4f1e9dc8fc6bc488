"""Remove nodes that only training needs: dropout, and ops that pass their input through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import OPS
from qgraph.ir.ops.arithmetic import CastAttrs
from qgraph.ir.ops.structure import OpaqueAttrs
from qgraph.ir.types import Array
from qgraph.passes import RewritePass
from qgraph.rewrite.pattern import Const, Op, Pattern, Var, match
from qgraph.rewrite.rewriter import Rewriter, Rule

PASS_THROUGH = (
    "StopGradient",
    "PreventGradient",
    "CheckNumerics",
    "CheckNumericsV2",
    "Snapshot",
    "Print",
    "PlaceholderWithDefault",
)
MASK_OPS = ("add", "sub", "mul", "div", "floor", "cast", "greater_equal", "identity")
MASK_LIMIT = 64  # steps; more than in the mask of any TensorFlow dropout

# A scaled input times a mask of zeros and ones; `mask` may also be the condition of a select.
SCALED = Op(("mul", "div"), Var("x"), Var("scale"), bind="scaled")
MASKED: Pattern = Op("mul", SCALED, Op(("floor", "cast"), Var("inner"), bind="mask"))
SELECTED: Pattern = Op("select", Var("mask"), SCALED, Const(equals=0.0))


@dataclass(frozen=True)
class RemoveTrainingNodes(RewritePass):
    """Replace dropout by its expectation, the input; splice ops that act in training only.

    Dropout in a frozen graph is a scaled input times a random mask: `floor(keep + random)`
    (TensorFlow 1.0 to 1.12), `cast(random >= rate)` (to 2.12), or a select on `random >= rate`.
    In all forms, the mean of the mask is computed; it must cancel the scale.
    Refusals: another mean; a random op that is not part of a dropout; control edges.
    """

    name: ClassVar[str] = "remove-training-nodes"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("dropout", ("mul", "select"), _dropout),
            Rule("pass-through", ("opaque",), _pass_through),
        )

    def apply(self, rewriter: Rewriter) -> None:
        super().apply(rewriter)
        rewriter.rule = "random"
        for node in rewriter.graph.nodes.values():
            if _is_random(node):
                rewriter.refuse(node, "a random op that is not part of a dropout")


def _dropout(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    found = match(graph, node.name, MASKED if node.op == "mul" else SELECTED)
    if found is None or not any(map(_is_random, _chain(graph, found["mask"]))):
        return False
    scaled = graph.producer(found["scaled"])
    x, scale = scaled.inputs
    if scaled.op == "mul" and _is_scalar(graph, x):
        x, scale = scale, x
    gain = _mean_gain(graph, found["mask"], scaled.op, scale)
    if gain is None:
        return rewriter.refuse(node, "its mask is random, and its mean cannot be computed")
    if abs(gain - 1) > 1e-3:
        return rewriter.refuse(node, f"it scales by {gain:.4g} on average, a dropout by 1")
    return rewriter.replace_value(node.name, x)


def _chain(graph: Graph, value: str) -> list[Node]:
    """The nodes that compute a mask or its scale, inputs first; empty if there are too many."""
    found: dict[str, Node] = {}
    waiting = [value]
    for _ in range(MASK_LIMIT):
        if not waiting:
            return [*reversed(found.values())]
        node = graph.nodes.get(waiting.pop())
        if node is not None and (node.op in MASK_OPS or _is_random(node)):
            found.pop(node.name, None)
            found[node.name] = node
            waiting += () if node.op == "opaque" else node.inputs
    return []


def _is_random(node: Node) -> bool:
    return node.op == "opaque" and "RandomUniform" in node.typed(OpaqueAttrs).kind


def _is_scalar(graph: Graph, value: str) -> bool:
    shape = graph.types[value].shape
    return shape is not None and all(d == 1 for d in shape)


def _mean_gain(graph: Graph, mask: str, op: str, scale: str) -> float | None:
    """The mean of mask * scale over uniform random numbers; a fed probability counts as 3/4."""
    values: dict[str, Array | None] = {}
    fed: set[str] = set()
    for node in [*_chain(graph, mask), *_chain(graph, scale)]:
        for value in () if _is_random(node) else (*node.inputs, scale):
            if value not in values and not _chain(graph, value):
                values[value] = _scalar(graph, value)
                fed |= set() if graph.constant(value) is not None else {value}
        values[node.name] = _sample(node, values)
    kept, factor = values.get(mask), values.get(scale)
    if kept is None or factor is None or len(fed) > 1 or any(v is None for v in values.values()):
        return None
    return float(np.mean(kept * factor if op == "mul" else kept / factor))


def _scalar(graph: Graph, value: str) -> Array | None:
    constant = graph.constant(value)
    if constant is not None:
        return constant.astype(np.float64).reshape(()) if constant.size == 1 else None
    return np.asarray(0.75) if graph.producer(value).op == "input" else None


def _sample(node: Node, values: Mapping[str, Array | None]) -> Array | None:
    if _is_random(node):
        return (np.arange(10_000) + 0.5) / 10_000
    inputs = [array for v in node.inputs if (array := values[v]) is not None]
    evaluate = OPS[node.op].evaluate
    if evaluate is None or len(inputs) < len(node.inputs):
        return None
    attributes = CastAttrs(dtype="float64") if node.op == "cast" else node.attributes
    return np.asarray(evaluate(attributes, inputs))


def _pass_through(rewriter: Rewriter, node: Node) -> bool:
    if node.typed(OpaqueAttrs).kind not in PASS_THROUGH or not node.inputs:
        return False
    if node.control or rewriter.graph.control_users(node.name):
        return rewriter.refuse(node, "it has control edges")
    return rewriter.replace_value(node.name, node.inputs[0])
