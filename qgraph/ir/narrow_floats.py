"""Float types other than float32 are imported as float32, from every file format.

float32 holds every float16 and every bfloat16, so weights keep their values. Casts between float
types then have nothing to do, and importers write them as `identity`. (float64 is cast after
import, by `qgraph.ir.cast`.)
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from qgraph.ir.types import Array

NARROW = ("float16", "bfloat16")
WIDE = "float32"


def widened_dtype(dtype: str) -> str:
    return WIDE if dtype in NARROW else dtype


def widened_array(array: Array) -> Array:
    """`array` itself, or its values in float32 if it has a narrow float type."""
    return array.astype(np.float32) if array.dtype.name in NARROW else array


def of_numpy(array: Array) -> Array:
    """`array` itself, or in float32 if it is bfloat16, which numpy reads as raw bytes."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def in_float32(array: Array) -> Array:
    """`array` itself, or cast to float32 if it has another float type."""
    return array.astype(np.float32) if array.dtype.name in (*NARROW, "float64") else array


def note(found: Collection[str]) -> str:
    """The note for the user on a model with these float types."""
    kept = "weights keep their values" if set(found) <= set(NARROW) else "weights are rounded"
    kinds = " and ".join(sorted(found))
    return (
        f"the model uses {kinds}; it is imported as float32: {kept}, and casts between float types "
        "are removed"
    )
