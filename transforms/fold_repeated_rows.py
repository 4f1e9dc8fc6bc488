"""Fold tensors with one known row for all samples, such as the first states of a recurrence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.reading import kind_of
from qgraph.ir.types import Array
from qgraph.passes import Pass
from qgraph.rewrite.constants import computed
from qgraph.rewrite.rewriter import Rewriter

MAX_ELEMENTS = 1 << 20  # of one row
BOUNDED = ("sigmoid", "tanh", "softsign", "hard_sigmoid", "relu6")


@dataclass(frozen=True)
class FoldRepeatedRows(Pass):
    """Compute what has the same row for every sample, though the number of samples is open.

    Recurrent layers start with zeros for each sample. Such rows become constants of one row where
    they meet a tensor of samples.
    """

    name: ClassVar[str] = "fold-repeated-rows"

    def apply(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        rows: dict[str, Array] = {}
        for node in list(graph.topological()):
            found = _row_of(graph, node, rows)
            if found is not None:
                rows[node.name] = found
        for name in list(rows):
            users = graph.users(name) if name in graph.nodes else ()
            for user in users:
                if user.name not in rows and not user.control:
                    _use_row(rewriter, user, name, rows[name])


def _row_of(graph: Graph, node: Node, rows: dict[str, Array]) -> Array | None:
    """The row that a node gives for every sample, [1, ...], if it is known."""
    kind = graph.types[node.name]
    shape = kind.shape
    if not shape or shape[0] is not None or None in shape[1:] or not kind.is_float:
        return None
    one = (1, *(size or 0 for size in shape[1:]))
    if np.prod(one, dtype=np.int64) > MAX_ELEMENTS or node.outputs != 1:
        return None
    made = _fill(graph, node)
    if made is not None:
        return np.full(one, made, kind.dtype)
    if node.op == "mul" and _has_zeros(graph, node, rows):
        return np.zeros(one, kind.dtype)
    inputs = list(_inputs(graph, node, rows))
    if len(inputs) < len(node.inputs) or not any(v in rows for v in node.inputs):
        return None
    found = computed(node, inputs, kind.dtype)
    return found if found.shape == one and np.isfinite(found).all() else None


def _fill(graph: Graph, node: Node) -> Array | None:
    """The number that all elements of a node are, if it makes such tensors.

    These are `Fill` of TensorFlow, a select between equal values, and min(max(x, c), c).
    """
    made: Array | None = None
    if node.op == "select" and node.inputs[1] == node.inputs[2]:
        made = graph.constant(node.inputs[1])
    elif node.op == "minimum":
        limit, above = graph.constant(node.inputs[1]), graph.producer(node.inputs[0])
        same = above.op == "maximum" and above.inputs[1] == node.inputs[1]
        made = limit if same else None
    elif node.op == "opaque" and kind_of(node) == "Fill" and len(node.inputs) == 2:
        made = graph.constant(node.inputs[1])
    uniform = made is not None and made.size > 0 and bool((made == made.flat[0]).all())
    return np.asarray(made).flat[0] if uniform else None


def _has_zeros(graph: Graph, node: Node, rows: dict[str, Array]) -> bool:
    """Whether a product has a factor of zeros, and the other one is never infinite."""
    return any(
        zeros in rows and not rows[zeros].any() and _is_bounded(graph, other)
        for zeros, other in (node.inputs, node.inputs[::-1])
    )


def _is_bounded(graph: Graph, value: str) -> bool:
    node = graph.producer(value)
    while op_definition(node.op).moves and len(node.inputs) == 1:
        node = graph.producer(node.inputs[0])
    return node.op in BOUNDED


def _inputs(graph: Graph, node: Node, rows: dict[str, Array]) -> Iterator[Array]:
    """The inputs of an op on rows: rows, and constants that are the same for all samples."""
    definition = op_definition(node.op)
    if definition.evaluate is None:
        return
    first = node.inputs[0] if node.inputs else ""
    shape = graph.types[first].shape if first else None
    layer = node.op in ("matmul", "bias_add") and first in rows
    keeps = shape is not None and definition.keeps_samples(node.attributes, shape)
    if not (definition.elementwise or layer or keeps):
        return
    for value in node.inputs:
        constant = graph.constant(value)
        if value in rows:
            yield rows[value]
        elif constant is not None:
            yield constant


def _use_row(rewriter: Rewriter, user: Node, value: str, row: Array) -> None:
    """Give an elementwise op one row instead of a row for each sample, if another input has these.

    Other inputs are those of arithmetic, and the condition and the other choice of a select.
    """
    graph = rewriter.graph
    shape, others = graph.types[user.name].shape, [v for v in user.inputs if v != value]
    if not op_definition(user.op).elementwise or len(others) == len(user.inputs):
        return
    if all(graph.types[other].shape != shape for other in others):
        return
    constant = rewriter.const(row, graph.fresh(f"{value}/row"))
    inputs: Sequence[str] = [constant if v == value else v for v in user.inputs]
    rewriter.put(replace(user, inputs=tuple(inputs)))
