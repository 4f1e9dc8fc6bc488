"""Rows of constant tables that inputs select: embeddings of words, positions, categories."""

from __future__ import annotations

import numpy as np

from qgraph.frontends.site import AnySite

INDICES = ("int32", "int64")
MAX_ONE_HOT = 1 << 16  # elements of a one-hot vector


def rows_of_table(site: AnySite, axis: int = 0) -> str | None:
    """An `embedding` for a gather along an axis, if its first input is a float constant."""
    table, indices, array = site.type(0), site.type(1), site.constant(0)
    if array is None or not table.is_float or not table.shape or indices.dtype not in INDICES:
        return None
    if axis == 0:
        return site.emit("embedding", *site.inputs[:2])
    if indices.rank is None:
        return None
    turned = site.const(np.ascontiguousarray(np.moveaxis(array, axis, 0)), "table")
    rows = site.helper("rows", "embedding", turned, site.inputs[1])
    first, last = indices.rank, indices.rank + array.ndim - 1  # of the other axes of the table
    before, after = range(first, first + axis), range(first + axis, last)
    return site.emit("transpose", rows, perm=(*before, *range(first), *after))


def one_hot(site: AnySite, indices: str, size: int, axis: int, off: str, on: str) -> str | None:
    """`on` at the place of each index along a new axis, else `off`."""
    rank = site.builder.graph.types[indices].rank
    if rank is None or not 0 < size <= MAX_ONE_HOT:
        return None
    target = [1] * (rank + 1)
    target[axis] = size
    dtype = site.builder.graph.types[indices].dtype
    each = site.const(np.arange(size, dtype=dtype).reshape(target), "each")
    column = site.helper("column", "expand_dims", indices, axis=axis)
    same = site.helper("same", "equal", column, each)
    return site.emit("select", same, on, off)
