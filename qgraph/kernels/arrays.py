"""Arguments of kernels: C-contiguous float32 arrays."""

from __future__ import annotations

import numpy as np

from qgraph.ir.types import Array
from qgraph.kernels.plain import Float32


def contiguous(x: Array) -> Float32:
    """The array in C order. Raises TypeError if it is not float32."""
    array = np.asarray(x, order="C")
    if array.dtype != np.float32:
        raise TypeError(f"expected a float32 array, not {array.dtype}")
    return array
