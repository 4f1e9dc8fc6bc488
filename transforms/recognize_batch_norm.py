"""Recognise batch norms that a graph writes out in arithmetic, as in graphs that TF 1 froze."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array
from qgraph.passes import RewritePass
from qgraph.rewrite.arithmetic_rules import ABSORB_VECTOR
from qgraph.rewrite.constants import channel_vector, channels_of
from qgraph.rewrite.pattern import Const, Op, Pattern, Var, match
from qgraph.rewrite.rewriter import Rewriter, Rule

X, M, MEAN = Var("x"), Var("m"), Var("mean")
GAMMA, BETA, VARIANCE, SHIFTED = Var("gamma"), Var("beta"), Var("variance"), Var("shifted")
ONE = Const(equals=1.0)

# x * m + (beta - mean * m): tf.nn.batch_normalization, and the same without beta, and Keras 3.
FORMS: tuple[Pattern, ...] = (
    Op("add", Op("mul", X, M), Op("sub", BETA, Op("mul", MEAN, M))),
    Op("add", Op("mul", X, M), Op("neg", Op("mul", MEAN, M))),
    Op("sub", Op("mul", X, M), Op("mul", MEAN, M)),
    Op("add", Op("mul", X, M), Op("add", Op("mul", Op("neg", MEAN), M), BETA)),
    Op("add", Op("mul", X, M), Op("mul", Op("neg", MEAN), M)),
)
# (x - mean) / sqrt(variance + epsilon); gamma and beta, if any, are absorbed afterwards.
CENTERED: tuple[Pattern, ...] = (
    Op("mul", Op("sub", X, MEAN), M),
    Op("div", Op("sub", X, MEAN), Op("sqrt", SHIFTED)),
)
INVERSE: tuple[Pattern, ...] = (
    Op("rsqrt", SHIFTED),
    Op("reciprocal", Op("sqrt", SHIFTED)),
    Op("div", ONE, Op("sqrt", SHIFTED)),
)
SCALED_INVERSE: tuple[Pattern, ...] = (
    *INVERSE,
    *(Op("mul", inverse, GAMMA) for inverse in INVERSE),
    Op("div", GAMMA, Op("sqrt", SHIFTED)),
)
EPSILON = Op("add", VARIANCE, Const("epsilon"))


@dataclass(frozen=True)
class RecognizeBatchNorm(RewritePass):
    """Written-out batch norm becomes `batch_norm`; a scale or shift right after it is absorbed.

    Runs before constants are folded, while mean and variance are still separate. If they were
    folded when the graph was frozen, `x * const + const` remains, which `fold-batch-norm` handles
    in the same way. Refusals: statistics that are computed from the data (training mode, layer or
    instance norm).
    """

    name: ClassVar[str] = "recognize-batch-norm"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("written-out", ("add", "sub", "mul", "div"), _written_out),
            ABSORB_VECTOR,
        )


def _first(graph: Graph, value: str, forms: tuple[Pattern, ...]) -> dict[str, str] | None:
    return next((dict(m) for form in forms if (m := match(graph, value, form)) is not None), None)


def _written_out(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    forms = FORMS if node.op in ("add", "sub") else CENTERED
    found = _first(graph, node.name, forms)
    if found is not None and "m" in found:
        factor = _first(graph, found["m"], SCALED_INVERSE)
        if factor is None:
            return False
        found |= factor
    if found is None or not graph.types[found["x"]].is_float:
        return False
    epsilon = match(graph, found["shifted"], EPSILON)
    found["variance"] = epsilon["variance"] if epsilon else found["shifted"]
    small = graph.constant(epsilon["epsilon"]) if epsilon else np.zeros(1)
    if small is None or small.size != 1:
        return False
    return _make(rewriter, node, found, float(small.reshape(())))


def _make(rewriter: Rewriter, node: Node, found: dict[str, str], epsilon: float) -> bool:
    graph = rewriter.graph
    channels = channels_of(graph, found["x"])
    dtype = np.dtype(graph.types[found["x"]].dtype)
    vectors: dict[str, Array] = {"gamma": np.ones(channels or 1), "beta": np.zeros(channels or 1)}
    for role in ("mean", "variance", "gamma", "beta"):
        if role not in found:
            continue
        vector = channel_vector(graph, found[role], channels)
        if vector is None:
            what = graph.producer(found[role])
            return rewriter.refuse(
                node,
                f"this looks like a batch norm, but its {role} `{what.name}` ({what.op}) is not a"
                " constant of one number a channel: the model is in training mode, or it is another"
                " norm",
            )
        vectors[role] = vector
    if graph.types[found["x"]] != graph.types[node.name]:
        return rewriter.refuse(node, "its statistics widen the result")
    statistics = [
        rewriter.const(vectors[role].astype(dtype), f"{node.name}/{role}")
        for role in ("gamma", "beta", "mean", "variance")
    ]
    inputs = (found["x"], *statistics)
    attrs = {"epsilon": epsilon}
    return rewriter.put(Node(node.name, "batch_norm", inputs, attrs, node.control))
