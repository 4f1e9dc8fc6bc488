"""Cumulative sums as products with a triangle of ones, which fixed point can compute."""

from __future__ import annotations

import math

import numpy as np

from qgraph.frontends.site import AnySite

MAX_MATRIX = 1 << 22


def cumulative(site: AnySite, axis: int, exclusive: bool, reverse: bool) -> str | None:
    """The sum of all elements up to each one along an axis, counted from the front.

    exclusive: without the element itself. reverse: from each one to the end.
    """
    shape = site.shape()
    if not site.type().is_float or not shape:
        return None
    if None in shape[axis:] or shape[:axis].count(None) > 1:
        return None
    size, post = shape[axis] or 0, math.prod(d or 0 for d in shape[axis + 1 :])
    if size * size > MAX_MATRIX or not size or not post:
        return None
    triangle = np.tri(size, k=-1 if exclusive else 0)
    triangle = triangle.T if reverse else triangle
    matrix = site.const(triangle.astype(np.dtype(site.type().dtype)), "triangle")
    rows = site.helper("rows", "reshape", site.inputs[0], shape=(-1, size, post))
    made = site.helper("sums", "batch_matmul", matrix, rows)
    return site.emit("reshape", made, shape=tuple(-1 if d is None else d for d in shape))
