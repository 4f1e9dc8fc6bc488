"""Exponents of thresholds, as the paper defines them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from qgraph.ir.types import Codes


def exponent_of(log2_t: npt.ArrayLike, bits: int, signed: bool) -> int | Codes:
    """Fractional length f of a threshold: `f = (bits - signed) - ceil(log2_t)`."""
    exponent = (bits - int(signed)) - np.ceil(np.asarray(log2_t)).astype(np.int64)
    return int(exponent) if exponent.ndim == 0 else exponent
