"""Rows that inputs select: of constant tables, such as embeddings of words, and of activations."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from qgraph.frontends.site import AnySite
from qgraph.ir.types import Shape
from qgraph.rewrite.one_hots import MAX_SIZE

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


def selected_rows(site: AnySite, x: str, indices: str, batch: int, what: str = "") -> str | None:
    """Rows of `x` at indices that are inputs, both with the same first `batch` axes, as a product
    of one-hot vectors and rows.

    what: the name of the result, if it is not that of the node.
    """
    types = site.builder.graph.types
    data, wanted = types[x].shape or (), types[indices].shape or ()
    known = (*data[1:], *wanted[1:])
    if not 0 < batch < len(data) or None in known or data[:batch] != wanted[:batch]:
        return None
    own, rest = _count(wanted[batch:]), _count(data[batch + 1 :])
    first, size = (-1, *data[1:batch]), data[batch] or 0
    if not types[x].is_float or not 1 < size <= MAX_SIZE or size * own > MAX_ONE_HOT:
        return None
    places = site.helper("places", "reshape", indices, shape=(*first, own))
    each = site.const(np.arange(size, dtype=types[indices].dtype), "each")
    column = site.helper("column", "expand_dims", places, axis=batch + 1)
    same = site.helper("same", "equal", column, each)
    vectors = site.helper("vectors", "cast", same, dtype=types[x].dtype)
    rows = site.helper("rows", "reshape", x, shape=(*first, size, rest))
    picked = site.helper("picked", "batch_matmul", vectors, rows)
    attrs = {"shape": (*first, *wanted[batch:], *data[batch + 1 :])}
    emit = partial(site.helper, what) if what else site.emit
    return emit("reshape", picked, **attrs)


def _count(shape: Shape) -> int:
    return math.prod(size or 0 for size in shape)
