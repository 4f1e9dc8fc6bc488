"""One-hot vectors of indices, as importers write them: comparisons with 0, 1, 2 ..."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array

MAX_SIZE = 1 << 10  # elements of a vector; its table has as many rows


@dataclass(frozen=True)
class OneHot:
    """Vectors along `axis` of indices, which have size 1 there.

    table: a row for each index, and one without the number of the index for all larger ones.
    """

    indices: str
    axis: int
    table: Array


def one_hot_of(graph: Graph, node: Node) -> OneHot | None:
    """The one-hot vectors that a node computes: a select of two numbers, a cast to floats, or both.

    The numbers of a select that is cast are integers.
    """
    if not node.inputs or not graph.types[node.name].is_float:
        return None
    on, off = (np.float32(1), np.float32(0))
    chosen = graph.producer(node.inputs[0]) if node.op == "cast" else node
    if chosen.op == "select":
        numbers = [graph.constant(value) for value in chosen.inputs[1:]]
        if any(number is None or number.size != 1 for number in numbers):
            return None
        on, off = (np.float32(np.ravel(number)[0]) for number in numbers if number is not None)
    elif node.op != "cast":
        return None
    same = graph.producer(chosen.inputs[0]) if chosen.op == "select" else chosen
    for indices, other in (same.inputs, same.inputs[::-1]) if same.op == "equal" else ():
        shape, made = graph.types[indices].shape, graph.types[node.name].shape
        if not shape or not made or len(shape) != len(made):
            continue
        axis = _counted_axis(graph.constant(other), len(made))
        if axis is None or shape[axis] != 1:
            continue
        size = made[axis] or 0
        if (*shape[:axis], size, *shape[axis + 1 :]) == made:
            return OneHot(indices, axis, np.where(np.eye(size + 1, size, dtype=bool), on, off))
    return None


def _counted_axis(numbers: Array | None, rank: int) -> int | None:
    """The axis of a tensor of `rank` along which a constant is 0, 1, 2 ...; None if none is."""
    if numbers is None or numbers.dtype.kind not in "iu" or not 1 < numbers.size <= MAX_SIZE:
        return None
    axis = int(np.argmax(numbers.shape))
    counts = numbers.size == numbers.shape[axis] and np.array_equal(
        numbers.reshape(-1), np.arange(numbers.size)
    )
    return rank - numbers.ndim + axis if counts else None
