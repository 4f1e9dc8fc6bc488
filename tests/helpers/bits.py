"""Compare numbers bit by bit."""

from __future__ import annotations

import numpy as np

from qgraph.ir.types import Array


def same_bits(a: Array, b: Array) -> bool:
    """Whether all bits are the same; all NaN count as equal."""
    bits = [np.where(np.isnan(v), v.dtype.type(np.nan), v).view(f"u{v.itemsize}") for v in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.all(bits[0] == bits[1]))
