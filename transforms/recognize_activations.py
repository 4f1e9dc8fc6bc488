"""Recognise activations that a graph writes out in arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt
from typing import ClassVar

from qgraph.ir.graph import Node
from qgraph.passes import RewritePass
from qgraph.rewrite.pattern import Const, Op, Pattern, Var, match
from qgraph.rewrite.rewriter import Rewriter, Rule

X = Var("x")
ZERO, HALF, ONE, THREE, SIX, SIXTH = (Const(equals=v) for v in (0.0, 0.5, 1.0, 3.0, 6.0, 1 / 6))

RELU6_SHIFTED = Op("relu6", Op("add", X, THREE))


def _gelu(factor: Pattern) -> tuple[Pattern, ...]:
    """x * factor / 2 in the orders that it is written in."""
    return (
        Op("mul", Op("mul", X, HALF), factor),
        Op("mul", X, Op("mul", HALF, factor)),
        Op("mul", HALF, Op("mul", X, factor)),
    )


def _erf(argument: Pattern) -> Pattern:
    return Op("add", ONE, Op("opaque", argument, bind="erf"))


GELU_TANH = _gelu(
    Op(
        "add",
        ONE,
        Op(
            "tanh",
            Op(
                "mul",
                Const(equals=sqrt(2 / pi)),
                Op("add", X, Op("mul", Const(equals=0.044715), Op("pow", X, THREE))),
            ),
        ),
    )
)
GELU_ERF = (
    *_gelu(Op("opaque", Op("mul", Op("neg", X), Const(equals=sqrt(1 / 2))), bind="erfc")),
    *_gelu(_erf(Op("div", X, Const(equals=sqrt(2))))),
    *_gelu(_erf(Op("mul", X, Const(equals=sqrt(1 / 2))))),
)

KINDS = {"erf": "Erf", "erfc": "Erfc"}  # of the opaque ops, by the name they are bound to

# For each activation the forms it is written in; a form is matched at its last node.
FORMS: tuple[tuple[str, tuple[Pattern, ...]], ...] = (
    ("relu", (Op("maximum", X, ZERO),)),
    (
        "relu6",
        (
            Op("minimum", Op("relu", X), SIX),
            Op("relu", Op("minimum", X, SIX)),
            Op("maximum", Op("minimum", X, SIX), ZERO),
        ),
    ),
    ("swish", (Op("mul", X, Op("sigmoid", X)),)),
    ("hard_sigmoid", (Op("mul", RELU6_SHIFTED, SIXTH), Op("div", RELU6_SHIFTED, SIX))),
    (
        "hard_swish",
        (
            Op("mul", X, Op("hard_sigmoid", X)),
            Op("mul", Op("mul", X, RELU6_SHIFTED), SIXTH),
            Op("div", Op("mul", X, RELU6_SHIFTED), SIX),
            Op("mul", Op("mul", X, SIXTH), RELU6_SHIFTED),
        ),
    ),
    ("gelu", (*GELU_ERF, *GELU_TANH)),
)


@dataclass(frozen=True)
class RecognizeActivations(RewritePass):
    """ReLU, ReLU6, swish, hard sigmoid, hard swish and GELU (erf and tanh) in place of arithmetic.

    Constants are compared in the dtype they have: 1/6 is the float32 next to 1/6 in a float32
    graph. Refusal: a constant that widens the result beyond the shape of `x`.
    """

    name: ClassVar[str] = "recognize-activations"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("recognize", ("mul", "div", "maximum", "relu", "minimum"), _recognize),)


def _recognize(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    for activation, forms in FORMS:
        for form in forms:
            found = match(graph, node.name, form)
            if found is None or graph.types[found["x"]].dtype != graph.types[node.name].dtype:
                continue
            kinds = {
                bind: graph.nodes[found[bind]].attrs["kind"] for bind in KINDS if bind in found
            }
            if any(kind != KINDS[bind] for bind, kind in kinds.items()):
                continue
            if graph.types[found["x"]] != graph.types[node.name]:
                return rewriter.refuse(
                    node,
                    f"{activation} of {graph.types[found['x']]} as a whole gives"
                    f" {graph.types[node.name]}: a constant widens it",
                )
            attrs = {"approximate": not kinds} if activation == "gelu" else {}
            return rewriter.put(Node(node.name, activation, (found["x"],), attrs, node.control))
    return False
