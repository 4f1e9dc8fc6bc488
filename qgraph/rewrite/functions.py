"""Pointwise functions of one tensor, recognised in any arithmetic that computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.activation import POINTWISE
from qgraph.ir.ops.composed import (
    ELEMENTWISE,
    Argument,
    ComposedAttrs,
    Step,
    composed,
    evaluated,
    steps_of,
)
from qgraph.ir.types import Array
from qgraph.rewrite.constants import Float64

MAX_STEPS = 64  # steps; far more than any known activation has
# Ops of affine functions, which layers and batch norms absorb.
AFFINE = frozenset({"add", "sub", "mul", "div", "neg", "bias_add"})


@dataclass(frozen=True)
class PointwiseFunction:
    """`root` as a function of the value `source`, in steps as in `composed`."""

    source: str
    root: str
    nodes: tuple[Node, ...]
    steps: tuple[Step, ...]

    def of(self, x: Float64) -> Float64:
        """The function on numbers, in float64."""
        with np.errstate(all="ignore"):
            result: Float64 = composed(ComposedAttrs(steps=self.steps), x)
        return result


def functions_at(graph: Graph, root: str, order: Mapping[str, int]) -> Iterator[PointwiseFunction]:
    """Every value that `root` is a pointwise function of, the nearest first.

    order: a number for each node, above those of the nodes that it needs.
    """

    def is_number(value: str) -> bool:
        return number_of(graph, value) is not None

    is_part = partial(_is_elementwise, graph, root=root)
    for source, nodes in single_sources(graph, root, order, is_part, is_number):
        if graph.types[source] == graph.types[root]:  # not a condition
            yield PointwiseFunction(source, root, nodes, _steps(graph, source, nodes))


def single_sources(
    graph: Graph,
    root: str,
    order: Mapping[str, int],
    is_part: Callable[[Node], bool],
    is_parameter: Callable[[str], bool],
) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """Find single values that determine `root`, nearest first, with the nodes between.

    All nodes between satisfy `is_part`; constants that satisfy `is_parameter` are not counted. Such
    a value dominates `root`: the search goes back from `root`, always from the value that is last
    in `order`, and ends at another constant or op.
    """
    inside: list[Node] = []
    frontier = {root}
    while frontier and len(inside) < MAX_STEPS:
        value = max(frontier, key=order.__getitem__)
        node = graph.nodes[value]
        if not is_part(node):
            return
        frontier.remove(value)
        inside.append(node)
        for needed in node.inputs:
            if not is_parameter(needed):
                if needed not in order or graph.constant(needed) is not None:
                    return  # a second output of a node, or a constant, but not a parameter
                frontier.add(needed)
        if len(frontier) == 1:
            (source,) = frontier
            yield source, tuple(reversed(inside))


def _is_elementwise(graph: Graph, node: Node, root: str) -> bool:
    """Whether a node is an op on the elements of tensors of the size of `root`, and on numbers."""
    if node.op not in ELEMENTWISE and node.op not in ("bias_add", "composed"):
        return False
    if node.name != root and (node.control or graph.control_users(node.name)):
        return False
    known, wanted = graph.types[node.name], graph.types[root]
    floats = known.dtype == wanted.dtype or known.dtype == "bool"
    return wanted.is_float and floats and known.shape == wanted.shape


def number_of(graph: Graph, value: str) -> float | None:
    """The single finite number in a float constant of any shape."""
    array = graph.constant(value)
    if array is None or array.dtype.kind != "f" or not array.size:
        return None
    first = float(array.flat[0])
    same = np.isfinite(first) and bool((array == array.flat[0]).all())
    return first if same else None


def _steps(graph: Graph, source: str, nodes: tuple[Node, ...]) -> tuple[Step, ...]:
    index = {source: 0}
    steps: list[Step] = []
    for node in nodes:
        arguments: list[Argument] = []
        for value in node.inputs:
            number = number_of(graph, value)
            arguments.append(index[value] if number is None else number)
        inner = steps_of(node.attributes) if node.op == "composed" else None
        if inner is None:
            op = "add" if node.op == "bias_add" else node.op
            steps.append((op, tuple(arguments), tuple(sorted(node.attrs.items()))))
        else:
            steps += _moved(inner, int(arguments[0]), len(steps))
        index[node.name] = len(steps)
    return tuple(steps)


def _moved(steps: tuple[Step, ...], x: int, before: int) -> Iterator[Step]:
    """Steps of a function of value `x`, to be placed after `before` other steps."""
    for op, arguments, extra in steps:
        moved = (a if isinstance(a, float) else (x if a == 0 else a + before) for a in arguments)
        yield op, tuple(moved), extra


def written_out(graph: Graph) -> Graph:
    """The graph itself, or a copy in which `composed` ops are written as their steps."""
    nodes = [n for n in graph.nodes.values() if steps_of(n.attributes) is not None]
    if not nodes:
        return graph
    made = graph.copy()
    for node in nodes:
        values = [node.inputs[0]]
        dtype = np.dtype(graph.types[node.name].dtype)
        *inner, last = steps_of(node.attributes) or ()
        for op, arguments, extra in inner:
            inputs = _inputs(made, node, arguments, values, dtype)
            values.append(made.add(op, *inputs, name=f"{node.name}/{op}", attrs=dict(extra)))
        op, arguments, extra = last
        inputs = _inputs(made, node, arguments, values, dtype)
        made.replace(replace(node, op=op, inputs=inputs, attrs=dict(extra)))
    return made


def _inputs(
    graph: Graph,
    node: Node,
    arguments: tuple[Argument, ...],
    values: list[str],
    dtype: npt.DTypeLike,
) -> tuple[str, ...]:
    return tuple(
        values[a] if isinstance(a, int) else graph.const(np.asarray(a, dtype), f"{node.name}/c")
        for a in arguments
    )


# -- functions by name ------------------------------------------------------------------------

# Points at which functions are compared: densely around 0, where they are curved, then far out.
# They are not multiples of powers of two, so that steps of a staircase are seen; 0, 3 and 6 are
# included.
NEAR = np.concatenate([np.arange(-12.0, 13.0), np.linspace(-14.3, 14.7, 211)])
TINY, FAR = np.geomspace(1e-6, 0.1, 9), np.geomspace(15.1, 80.0, 9)
VERY_FAR = np.geomspace(81.0, 3e38, 23)  # where exponentials may overflow
POINTS = np.concatenate([NEAR, TINY, -TINY, FAR, -FAR, VERY_FAR, -VERY_FAR])
OVERFLOWS = np.abs(POINTS) > 80

NAMED: tuple[tuple[str, dict[str, object]], ...] = (
    ("relu", {}),
    ("relu6", {}),
    ("gelu", {"approximate": False}),
    ("gelu", {"approximate": True}),
    *((name, {}) for name in POINTWISE if name != "gelu"),
    ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
)


@dataclass(frozen=True)
class KnownFunctions:
    """The functions that have a name, evaluated at `POINTS`."""

    values: tuple[Float64, ...]

    @classmethod
    def all(cls) -> KnownFunctions:
        with np.errstate(all="ignore"):
            return cls(tuple(np.asarray(_known(op, attrs)) for op, attrs in NAMED))

    def name_of(
        self, function: PointwiseFunction, dtype: str
    ) -> tuple[str, dict[str, object]] | None:
        """The op with attributes that equals this function up to rounding in `dtype`."""
        found = function.of(POINTS)
        tolerance = 16 * float(np.finfo(dtype).eps) * np.maximum(np.abs(POINTS), 1)
        for (op, attrs), values in zip(NAMED, self.values, strict=True):
            with np.errstate(invalid="ignore"):
                same = np.abs(found - values) <= tolerance
            if np.all(same | (OVERFLOWS & ~np.isfinite(found))):
                return op, dict(attrs)
        return None


def _known(op: str, attrs: dict[str, Any]) -> Array:
    result: Array = evaluated(op, attrs, [POINTS])
    return result
