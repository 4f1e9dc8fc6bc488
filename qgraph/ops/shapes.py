"""Shape rules shared by several kinds of ops."""

from __future__ import annotations

from collections.abc import Sequence

from qgraph.errors import GraphError

Sizes = tuple[int, ...]


def concatenated(shapes: Sequence[Sizes], axis: int) -> Sizes:
    """The shape of tensors one after the other. Raises GraphError where they do not fit."""
    first = shapes[0]

    def others(shape: Sizes) -> tuple[Sizes, Sizes]:
        return shape[:axis], shape[axis + 1 :]

    if any(len(s) != len(first) or others(s) != others(first) for s in shapes):
        raise GraphError(f"operands of shapes {list(shapes)} cannot be joined along axis {axis}")
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])
