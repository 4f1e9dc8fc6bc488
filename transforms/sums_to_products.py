"""Sums and means over any axes as products with constant rows, which fixed point can compute."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.ops.pool import ReductionAttrs
from qgraph.passes import RewritePass
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class SumsToProducts(RewritePass):
    """A sum or a mean between layers becomes a product with a row of ones, or of equal shares.

    Means over height and width are average pools before (`mean-to-avg-pool`). Refusals: sums over
    the batch; unknown sizes; a result that float arithmetic reads.
    """

    name: ClassVar[str] = "sums-to-products"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("product", ("mean", "sum"), _convert),)


def _convert(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    known = graph.types[node.inputs[0]]
    if not known.is_float or not known.shape:
        return False
    rank = len(known.shape)
    axes = sorted({axis % rank for axis in node.typed(ReductionAttrs).axes})
    if not axes or axes[0] == 0:
        return rewriter.refuse(node, f"it is over axes {axes}, with the batch")
    if None in known.shape[1:]:
        return rewriter.refuse(node, f"sizes of {known} are unknown: give --input-shape")
    if not _leads_to_layers(graph, node.name):
        return rewriter.refuse(node, "float arithmetic or an output reads its result")
    sizes, x, dtype = [int(d or 0) for d in known.shape], node.inputs[0], np.dtype(known.dtype)
    for block in reversed(_blocks(axes)):
        count = math.prod(sizes[axis] for axis in block)
        parts = (math.prod(sizes[1 : block[0]]), count, math.prod(sizes[block[-1] + 1 :]))
        name = f"{node.name}/axis{block[0]}"
        x = rewriter.add("reshape", x, name=f"{name}/rows", attrs={"shape": (-1, *parts)})
        row = np.full((1, count), 1 / count if node.op == "mean" else 1, dtype)
        x = rewriter.add("batch_matmul", rewriter.const(row, f"{name}/row"), x, name=f"{name}/sum")
        for axis in block:
            sizes[axis] = 1
    target = tuple(-1 if d is None else d for d in graph.types[node.name].shape or ())
    return rewriter.put(Node(node.name, "reshape", (x,), {"shape": target}, node.control))


def _blocks(axes: list[int]) -> list[list[int]]:
    """Runs of axes that follow each other."""
    runs = groupby(enumerate(axes), lambda pair: pair[1] - pair[0])
    return [[axis for _, axis in run] for _, run in runs]


def _leads_to_layers(graph: Graph, value: str) -> bool:
    """Whether only integer arithmetic lies between a value and the layers and tables behind it."""
    waiting, seen = [value], {value}
    while waiting:
        current = waiting.pop()
        if graph.is_output(current) or not graph.users(current):
            return False
        for user in graph.users(current):
            definition = op_definition(user.op)
            if user.op in (*COMPUTE, "quantize") or definition.pointwise or user.name in seen:
                continue
            if definition.integer is None:
                return False
            seen.add(user.name)
            waiting.append(user.name)
    return True
