"""Recognise layer norms that a graph writes out in arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.passes import RewritePass
from qgraph.rewrite.constants import channel_vector, channels_of, is_channel_mean
from qgraph.rewrite.pattern import Bindings, Const, Op, Pattern, Var, match
from qgraph.rewrite.rewriter import Rewriter, Rule

X, M, GAMMA, BETA = Var("x"), Var("m"), Const("gamma"), Const("beta")
MEAN = Op("mean", X, bind="mean")
SPREAD: tuple[Pattern, ...] = (
    Op("mean", Op("squared_difference", X, MEAN), bind="variance"),
    Op("mean", Op("squared_difference", MEAN, X), bind="variance"),
    Op("mean", Op("square", Op("sub", X, MEAN)), bind="variance"),
)
# x * m + (beta - mean * m) with m = rsqrt(variance + epsilon) * gamma: tf.nn.batch_normalization
# on moments of the data, which is how tf.contrib and Keras write a layer norm.
WHOLE: tuple[Pattern, ...] = (
    Op("add", Op("mul", X, M), Op("sub", BETA, Op("mul", MEAN, M))),
    Op("add", Op("mul", X, M), Op("add", Op("mul", Op("neg", MEAN), M), BETA)),
)
EPSILON = Const("epsilon")
# The form of exporters to ONNX: (x - mean) / sqrt(variance + epsilon) * gamma + beta.
CENTRED = Op("sub", X, MEAN)
SQUARES: tuple[Pattern, ...] = (
    Op("mean", Op("pow", CENTRED, Const(equals=2.0)), bind="variance"),
    Op("mean", Op("mul", CENTRED, CENTRED), bind="variance"),
    *SPREAD,
)
QUOTIENTS: tuple[Pattern, ...] = tuple(
    Op("add", Op("mul", Op("div", CENTRED, Op("sqrt", Op("add", s, EPSILON))), GAMMA), BETA)
    for s in SQUARES
)
FACTORS: tuple[Pattern, ...] = tuple(
    Op("mul", Op("rsqrt", Op("add", spread, EPSILON)), GAMMA) for spread in SPREAD
)


@dataclass(frozen=True)
class RecognizeLayerNorm(RewritePass):
    """Mean and variance over the last axis, then scale and shift: one `layer_norm`."""

    name: ClassVar[str] = "recognize-layer-norm"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("written-out", ("add",), _written_out),)


def _found(graph: Graph, name: str) -> tuple[Bindings, Bindings] | None:
    """What holds x and beta, and what holds gamma, epsilon, mean and variance."""
    quotient = next((m for form in QUOTIENTS if (m := match(graph, name, form))), None)
    if quotient is not None:
        return quotient, quotient
    whole = next((m for form in WHOLE if (m := match(graph, name, form))), None)
    if whole is None:
        return None
    factor = next((m for form in FACTORS if (m := match(graph, whole["m"], form))), None)
    if factor is None or factor["x"] != whole["x"] or factor["mean"] != whole["mean"]:
        return None
    return whole, factor


def _written_out(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    found = _found(graph, node.name)
    if found is None:
        return False
    whole, factor = found
    x, epsilon = whole["x"], graph.constant(factor["epsilon"])
    if not all(is_channel_mean(graph, graph.nodes[factor[v]]) for v in ("mean", "variance")):
        return False
    channels, dtype = channels_of(graph, x), np.dtype(graph.types[x].dtype)
    vectors = [channel_vector(graph, v, channels) for v in (factor["gamma"], whole["beta"])]
    if epsilon is None or epsilon.size != 1 or any(v is None for v in vectors):
        return False
    gamma, beta = (
        rewriter.const(np.asarray(v, dtype), f"{node.name}/{role}")
        for v, role in zip(vectors, ("gamma", "beta"), strict=True)
    )
    attrs = {"epsilon": float(epsilon.reshape(()))}
    return rewriter.put(Node(node.name, "layer_norm", (x, gamma, beta), attrs, node.control))
