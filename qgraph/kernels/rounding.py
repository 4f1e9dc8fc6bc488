"""Rounding of floats to whole numbers. `qgraph.numerics.round_shift` rounds codes."""

from __future__ import annotations

import numpy as np

from qgraph.ir.types import Array, Rounding, rounding_of_numbers


def round_numbers(x: Array, rounding: str) -> Array:
    """Round to whole numbers, in the dtype of `x`; NaN stays NaN."""
    match rounding_of_numbers(rounding):
        case Rounding.HALF_EVEN:
            return np.rint(x)
        case Rounding.FLOOR:
            return np.floor(x)
        case Rounding.HALF_UP:
            return _half_up(x)
        case Rounding.HALF_AWAY | Rounding.DOUBLE:
            return np.copysign(_half_up(np.abs(x)), x)


def _half_up(x: Array) -> Array:
    whole = np.floor(x)
    with np.errstate(invalid="ignore"):  # infinity minus itself
        return np.asarray(whole + (x - whole >= 0.5))
