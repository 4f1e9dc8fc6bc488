"""Expected values of a softmax as products with whole numbers, which fixed point holds exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.ops.pool import ReductionAttrs
from qgraph.ir.types import Array
from qgraph.passes import RewritePass
from qgraph.rewrite.constants import channel_vector
from qgraph.rewrite.rewriter import Rewriter, Rule

MOST = 127  # the largest whole number of weights of 8 bits
EVEN = 1e-5  # largest error of evenly spaced values, in steps


@dataclass(frozen=True)
class ExpectationsToProducts(RewritePass):
    """The sum of the shares of a softmax times constants becomes a layer.

    Distributional policies (C51) act by expected values: sum(p_i v_i). Values that are evenly
    spaced, v_i = v + k_i step with whole numbers k_i, become sum(p_i k_i) * step + v, since shares
    add up to 1: weights of few bits hold k_i exactly, but would round v_i. Refusals: other axes
    than the last, unknown sizes.
    """

    name: ClassVar[str] = "expectations-to-products"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("sum", ("sum",), _sum),)


def _sum(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    known = graph.types[node.inputs[0]]
    product = graph.producer(node.inputs[0])
    if product.op != "mul" or not known.shape:
        return False
    rank, count = len(known.shape), known.shape[-1]
    axes = {axis % rank for axis in node.typed(ReductionAttrs).axes}
    for shares, constants in (product.inputs, product.inputs[::-1]):
        values = channel_vector(graph, constants, count)
        if values is None or not _is_softmax(graph, shares):
            continue
        if axes != {rank - 1} or graph.types[shares].shape != known.shape:
            return rewriter.refuse(node, f"it is over axes {sorted(axes)}, not over the last one")
        if known.shape.count(None) > 1:
            return rewriter.refuse(node, f"sizes of {known} are unknown: give --input-shape")
        return _write(rewriter, node, shares, values)
    return False


def _is_softmax(graph: Graph, value: str) -> bool:
    """Whether a value is a softmax over its last axis."""
    node, rank = graph.producer(value), graph.types[value].rank or 0
    return node.op == "softmax" and node.typed(AxisAttrs).axis % rank == rank - 1


def _write(rewriter: Rewriter, node: Node, shares: str, values: Array) -> bool:
    graph, name = rewriter.graph, node.name
    target = tuple(-1 if size is None else size for size in graph.types[name].shape or ())
    numbers, step, middle = _whole_numbers(np.asarray(values))
    column = rewriter.const(numbers[:, None], f"{name}/values")
    rows = rewriter.add("reshape", shares, name=f"{name}/rows", attrs={"shape": (-1, len(values))})
    made = rewriter.add("matmul", rows, column, name=f"{name}/product")
    if step == 1 and middle == 0:
        return rewriter.put(Node(name, "reshape", (made,), {"shape": target}, node.control))
    made = rewriter.add("reshape", made, name=f"{name}/whole", attrs={"shape": target})
    factor = rewriter.const(np.asarray(step, values.dtype), f"{name}/step")
    if middle == 0:
        return rewriter.put(Node(name, "mul", (made, factor), {}, node.control))
    made = rewriter.add("mul", made, factor, name=f"{name}/scaled")
    offset = rewriter.const(np.asarray(middle, values.dtype), f"{name}/middle")
    return rewriter.put(Node(name, "add", (made, offset), {}, node.control))


def _whole_numbers(values: Array) -> tuple[Array, float, float]:
    """k, step and v of values v + k * step; the values themselves, 1 and 0 if there are none."""
    count = len(values)
    exact = values.astype(np.float64)
    step = float(exact[-1] - exact[0]) / max(count - 1, 1)
    numbers = np.arange(count) - count // 2
    middle = float(exact[0]) + step * (count // 2)
    if step == 0 or count // 2 > MOST:
        return values, 1, 0
    if np.abs((exact - middle) / step - numbers).max() > EVEN * count:
        return values, 1, 0
    return numbers.astype(values.dtype), step, 0.0 if abs(middle) < EVEN * abs(step) else middle
