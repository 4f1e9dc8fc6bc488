"""Patterns over values, and their matcher.

    X = Var("x")
    SWISH = Op("mul", X, Op("sigmoid", X))
    bindings = match(graph, value, SWISH)        # {"x": "conv_1"} or None

A variable that occurs twice must match the same value twice. Commutative ops are tried in
both orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from qgraph.ir.graph import Graph, node_of

COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})
Bindings = Mapping[str, str]


@dataclass(frozen=True)
class Var:
    """Any value."""

    name: str


@dataclass(frozen=True)
class Const:
    """A constant; with `equals`, one whose elements all equal that number, rounded to its dtype."""

    name: str = ""
    equals: float | None = None


@dataclass(frozen=True, init=False)
class Op:
    """The first output of an op; the matched value is bound to `bind`."""

    op: str | tuple[str, ...]
    inputs: tuple[Pattern, ...]
    bind: str

    def __init__(self, op: str | tuple[str, ...], *inputs: Pattern, bind: str = "") -> None:
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "bind", bind)


Pattern = Var | Const | Op


def match(graph: Graph, value: str, pattern: Pattern) -> Bindings | None:
    """The bindings for which `pattern` matches `value`, or None."""
    return next(_matches(graph, value, pattern, {}), None)


def _matches(graph: Graph, value: str, pattern: Pattern, bound: Bindings) -> Iterator[Bindings]:
    if isinstance(pattern, Var):
        if bound.get(pattern.name, value) == value:
            yield {**bound, pattern.name: value}
    elif isinstance(pattern, Const):
        if _is_constant(graph, value, pattern.equals):
            yield {**bound, pattern.name: value} if pattern.name else bound
    else:
        yield from _matches_op(graph, value, pattern, bound)


def _is_constant(graph: Graph, value: str, equals: float | None) -> bool:
    array = graph.constant(value)
    if array is None:
        return False
    if equals is None:
        return True
    number = np.asarray(equals, array.dtype) if array.dtype.kind == "f" else equals
    return bool(array.dtype.kind in "fiu" and array.size > 0 and np.all(array == number))


def _matches_op(graph: Graph, value: str, pattern: Op, bound: Bindings) -> Iterator[Bindings]:
    node = graph.nodes[node_of(value)]
    ops = (pattern.op,) if isinstance(pattern.op, str) else pattern.op
    if node.op not in ops or len(node.inputs) != len(pattern.inputs) or value != node.name:
        return
    if pattern.bind:
        if bound.get(pattern.bind, value) != value:
            return
        bound = {**bound, pattern.bind: value}
    orders = permutations(node.inputs) if node.op in COMMUTATIVE else iter([node.inputs])
    for inputs in orders:
        yield from _matches_all(graph, inputs, pattern.inputs, bound)


def _matches_all(
    graph: Graph, values: tuple[str, ...], patterns: tuple[Pattern, ...], bound: Bindings
) -> Iterator[Bindings]:
    if not patterns:
        yield bound
        return
    for bindings in _matches(graph, values[0], patterns[0], bound):
        yield from _matches_all(graph, values[1:], patterns[1:], bindings)
