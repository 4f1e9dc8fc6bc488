"""Replace several ops by one if together they are a function of each element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.activation import POINTWISE
from qgraph.ir.ops.attributes import AxesAttrs
from qgraph.ir.ops.composed import Steps
from qgraph.ir.ops.linear import COMPUTE
from qgraph.passes import Pass
from qgraph.quant.topology import is_nonnegative
from qgraph.rewrite.functions import NEAR, PointwiseFunction, functions_at
from qgraph.rewrite.rewriter import Rewriter

# Ops without an integer form that get one in later passes if they precede layers.
INTEGER_LATER = frozenset({"avg_pool", "batch_norm", "layer_norm", "leaky_relu", "identity"})
# STEP is about the step of a table of 8-bit codes. A function that changes by more than MAX_CHANGE
# of its range within one step is too steep for a table.
STEP, MAX_CHANGE = 1 / 16, 0.25
SMALLEST_STEP = 2.0**-40
SUMS = ("mean", "sum")  # products with constant rows in later passes
# Layers, and quantizers that an already quantized file gives.
TO_CODES = (*COMPUTE, "quantize")


@dataclass(frozen=True)
class ComposeFunctions(Pass):
    """Elementwise arithmetic from one tensor to one result becomes one `composed` op.

    It becomes one table, rounded once, instead of several tables, products and sums, or floats.
    A quotient of a tensor and such a function is a product, if the reciprocal is one table. This
    applies only between layers: before the first and after the last, arithmetic stays float. Sums,
    products with constants and clips do not change, also at the start of a function: integer
    arithmetic supports them, and layers absorb them. Refusals: a function that is not finite for an
    input near 0; a function that is too steep for codes, such as a logarithm. Jumps, as those of a
    sign or a threshold, are not steep: codes of any width have a last one before a jump.
    """

    name: ClassVar[str] = "compose-functions"

    def apply(self, rewriter: Rewriter) -> None:
        rewriter.rule = "compose"
        left: set[str] = set()  # parts of functions that stay float
        # A composed function works on codes, so a later one may be composed too.
        while _compose_all(rewriter, left):
            pass


def _compose_all(rewriter: Rewriter, left: set[str]) -> bool:
    """Compose functions between the layers; True if anything was composed."""
    graph = rewriter.graph
    nodes = list(graph.topological())
    order = {node.name: index for index, node in enumerate(nodes)}
    nonnegative, behind = is_nonnegative(graph), _behind_layers(graph, order)
    into: set[str] = set()  # values that only integer arithmetic uses
    composed = False
    for name in (node.name for node in reversed(nodes)):  # the longest functions first
        if name not in graph.nodes or not _all_take_codes(graph, name, into):
            continue
        into.add(name)
        candidates = [] if name in left else _candidates(graph, name, order)
        candidates = [function for function in candidates if function.source in behind]
        if not candidates:
            quotient = graph.nodes[name].op == "div" and name not in left
            if quotient and _quotient_to_product(rewriter, graph.nodes[name], order, behind):
                composed = True
            continue
        reasons = [_unfit(function, nonnegative(function.source)) for function in candidates]
        if None in reasons:
            _compose(rewriter, candidates[reasons.index(None)])
            composed = True
        elif reasons[0]:
            rewriter.refuse(graph.nodes[name], reasons[0])
            left.update(node.name for node in candidates[0].nodes)
    return composed


def _compose(rewriter: Rewriter, function: PointwiseFunction) -> None:
    node, attrs = rewriter.graph.nodes[function.root], {"steps": _defined(function)}
    rewriter.put(Node(node.name, "composed", (function.source,), attrs, node.control))


def _quotient_to_product(
    rewriter: Rewriter, node: Node, order: Mapping[str, int], behind: set[str]
) -> bool:
    """x / f(y) becomes x * g(y) with g = 1 / f, if g may be a table."""
    graph, (x, divisor) = rewriter.graph, node.inputs
    if (
        node.control
        or x not in behind
        or divisor not in order
        or graph.constant(divisor) is not None
    ):
        return False
    nonnegative = is_nonnegative(graph)
    for function in functions_at(graph, divisor, order):
        steps = (*function.steps, ("reciprocal", (len(function.steps),), ()))
        inverse = replace(function, steps=steps)
        if function.source in behind and _unfit(inverse, nonnegative(function.source)) is None:
            name, attrs = f"{node.name}/reciprocal", {"steps": _defined(inverse)}
            factor = rewriter.add("composed", function.source, name=name, attrs=attrs)
            return rewriter.put(Node(node.name, "mul", (x, factor), control=node.control))
    return False


def _defined(function: PointwiseFunction) -> Steps:
    """The steps, behind a ReLU if they have no value below 0: signed codes have such numbers, also
    where none occurs.
    """
    if np.isfinite(function.of(NEAR)).all():
        return function.steps
    later = (
        (op, tuple(a + 1 if isinstance(a, int) else a for a in arguments), attrs)
        for op, arguments, attrs in function.steps
    )
    return (("relu", (0,), ()), *later)


def _unfit(function: PointwiseFunction, nonnegative: bool) -> str | None:
    """The reason why a function cannot be a table, if there is one."""
    if not np.isfinite(function.of(NEAR[NEAR >= 0] if nonnegative else NEAR)).all():
        return "stays float: this function of each element is not finite everywhere"
    x = np.arange(0 if nonnegative else -8, 8 + STEP, STEP)
    values = function.of(x)
    steep = np.flatnonzero(np.abs(np.diff(values)) > MAX_CHANGE * np.ptp(values))
    if any(not _jumps(function, x[i], x[i + 1]) for i in steep):
        return "stays float: this function of each element is too steep for a table"
    return None


def _jumps(function: PointwiseFunction, low: float, high: float) -> bool:
    """Whether most of the change between two points is a jump, which no finer step resolves."""
    first, last = function.of(np.array([low, high]))
    ends = first, last
    while high - low > SMALLEST_STEP:
        middle = (low + high) / 2
        (value,) = function.of(np.array([middle]))
        if abs(value - ends[0]) > abs(ends[1] - value):
            high, ends = middle, (ends[0], value)
        else:
            low, ends = middle, (value, ends[1])
    return bool(abs(ends[1] - ends[0]) > abs(last - first) / 2)


def _all_take_codes(graph: Graph, value: str, into: set[str]) -> bool:
    users = graph.users(value)
    return (
        bool(users)
        and not graph.is_output(value)
        and all(_takes_codes(graph, user, into) for user in users)
    )


def _takes_codes(graph: Graph, user: Node, into: set[str]) -> bool:
    """Whether a node and all users of its result work on codes."""
    if user.op in TO_CODES or op_definition(user.op).pointwise:
        return True
    rank = graph.types[user.inputs[0]].rank or 0 if user.op in SUMS else 0
    if user.op == "mean":  # over channels it is part of a norm
        return not {rank - 1, -1} & {*user.typed(AxesAttrs).axes} and user.name in into
    if user.op == "sum":  # over the batch it stays float
        return not {0, -rank} & {*user.typed(AxesAttrs).axes} and user.name in into
    return user.name in into and _may_be_integer(user)


def _may_be_integer(node: Node) -> bool:
    definition = op_definition(node.op)
    return definition.integer is not None or definition.pointwise or node.op in INTEGER_LATER


def _candidates(graph: Graph, root: str, order: dict[str, int]) -> list[PointwiseFunction]:
    """The longest function with `root` as its result, without supported arithmetic at its start,
    then longer ones, which may be finite where it is not.
    """
    if root not in graph.nodes:
        return []
    found: list[PointwiseFunction] = []
    taken = 0
    for function in functions_at(graph, root, order):
        fresh = function.nodes[: len(function.nodes) - taken]
        taken = len(function.nodes)
        if any(not _is_integer(graph, node) or node.op in POINTWISE for node in fresh):
            found = [function]
        elif found:
            found.append(function)
    return found if found and _gains(graph, found[0]) else []


def _gains(graph: Graph, function: PointwiseFunction) -> bool:
    """Whether it is more than a single op that integers support."""
    if len(function.nodes) > 1:
        return True
    (node,) = function.nodes
    return not (_is_integer(graph, node) or op_definition(node.op).pointwise)


def _is_integer(graph: Graph, node: Node) -> bool:
    """Whether an op works on codes, directly or as a product with a constant, like x / c and -x.

    A product of two functions of x is not one.
    """
    if node.op == "mul" and all(graph.constant(v) is None for v in node.inputs):
        return False
    if node.op == "div" and graph.constant(node.inputs[1]) is not None:
        return True
    if node.op == "neg":
        return True
    return op_definition(node.op).integer is not None


def _behind_layers(graph: Graph, order: Mapping[str, int]) -> set[str]:
    """Values that depend on a layer or a quantizer without float arithmetic between, apart from
    functions that may become tables.
    """
    found: set[str] = set()
    nonnegative = is_nonnegative(graph)

    def may_be_table(node: Node) -> bool:
        return any(
            function.source in found and _unfit(function, nonnegative(function.source)) is None
            for function in functions_at(graph, node.name, order)
        )

    for node in graph.topological():
        reached = any(value in found for value in node.inputs)
        integer = reached and (_may_be_integer(node) or node.op in SUMS)
        if node.op in TO_CODES or integer or (reached and may_be_table(node)):
            found.update(node.values)
    return found
