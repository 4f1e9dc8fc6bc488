"""Scale each feature of an input by its own power of two in front of the quantizer.

A position in metres and an angle in radians may share one input tensor. With one scale, small
features have few codes. The host converts floats to codes anyway, and can use a different shift for
each feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import marks_of
from qgraph.numerics import checked_exponent
from qgraph.passes import Pass, option
from qgraph.rewrite.constants import channels_of, is_layer, only_user, times
from qgraph.rewrite.rewriter import Rewriter

NORMALISES = frozenset({"add", "sub", "mul", "div", "bias_add", "minimum", "maximum", "relu6"})


@dataclass(frozen=True)
class ScaleInputs(Pass):
    """Multiply features by 2^exponent in front of the input quantizer; layers divide by it.

    `exponents` has for each value one exponent per feature (`qgraph.static.feature_exponents`
    computes them). Normalising arithmetic between the input and that value is marked `outside`: it
    stays float, and the network begins after it. The result is exact: factors are powers of two.
    """

    exponents: Mapping[str, tuple[int, ...]] = option(
        "Exponents of the features of a value, like {state=[3, 0, -1]}."
    )
    name: ClassVar[str] = "scale-inputs"
    requires: ClassVar[frozenset[str]] = frozenset({"batch-norm-folded"})

    def apply(self, rewriter: Rewriter) -> None:
        rewriter.rule = "scale"
        for value, exponents in self.exponents.items():
            if all(is_layer(user) for user in rewriter.graph.users(value)):
                _scale(rewriter, value, exponents)


def scalable_inputs(graph: Graph) -> list[str]:
    """The values, at most one for each input, whose features may have separate scales."""
    return [end for name in graph.inputs if (end := _normalised(graph, name)) is not None]


def scaled_features(graph: Graph) -> dict[str, tuple[int, ...]]:
    """The exponents that this pass has assigned, by value."""
    found: dict[str, tuple[int, ...]] = {}
    for node in graph.nodes.values():
        if node.op == "mul" and marks_of(node).outside:
            value, factors = node.inputs[0], graph.constant(node.inputs[1])
            if node.name.startswith(f"{value}/scaled") and factors is not None:
                found[value] = tuple(int(e) for e in np.log2(factors))
    return found


def _chain(graph: Graph, name: str) -> list[Node]:
    """The input and the arithmetic with constants that follows it, one node after the other."""
    chain = [graph.nodes[name]]
    while (user := only_user(graph, chain[-1].name)) is not None and user.op in NORMALISES:
        others = [v for v in user.inputs if v != chain[-1].name]
        if len(others) + 1 != len(user.inputs) or any(graph.constant(v) is None for v in others):
            break
        if graph.types[user.name].shape != graph.types[name].shape:
            break
        chain.append(user)
    return chain


def _normalised(graph: Graph, name: str) -> str | None:
    """The value whose features may be scaled, if only layers use it and features are known."""
    end = _chain(graph, name)[-1].name
    users = graph.users(end)
    rank, taken = graph.types[end].rank, end in graph.outputs.values()
    takes = all(is_layer(user) and user.inputs[0] == end for user in users)
    weights = all(_is_own_constant(graph, user.inputs[1]) for user in users if takes)
    ready = users and takes and weights and rank == 2 and channels_of(graph, end) and not taken
    return end if ready and graph.types[end].is_float else None


def _is_own_constant(graph: Graph, value: str) -> bool:
    """Whether a constant has one user: factors would make shared weights different."""
    return graph.constant(value) is not None and graph.use_count(value) == 1


def _scale(rewriter: Rewriter, value: str, exponents: tuple[int, ...]) -> None:
    graph = rewriter.graph
    users = graph.users(value)
    checked_exponent(exponents, value)
    for node in _chain(graph, _input_of(graph, value))[1:]:
        graph.set_attrs(node.name, outside=True)
    dtype = graph.types[value].dtype
    factors = rewriter.const(np.ldexp(1.0, exponents).astype(dtype), f"{value}/factors")
    scaled = rewriter.add("mul", value, factors, name=f"{value}/scaled", attrs={"outside": True})
    for layer in users:
        weights = graph.constant(layer.inputs[1])
        undone = times(weights, np.ldexp(1.0, [-e for e in exponents])[:, None])
        made = rewriter.const(undone, f"{layer.inputs[1]}/unscaled")
        rewriter.put(replace(layer, inputs=(scaled, made)))
    rewriter.log(graph.nodes[scaled], f"features times 2^{min(exponents)} to 2^{max(exponents)}")


def _input_of(graph: Graph, value: str) -> str:
    node = graph.producer(value)
    while node.op != "input":
        node = next(graph.producer(v) for v in node.inputs if graph.constant(v) is None)
    return node.name
