"""Scales of constants: weights, biases, and what else does not depend on data."""

from __future__ import annotations

import numpy as np

from qgraph.ir.types import Array, QuantSpec
from qgraph.numerics import exponent_for_max, finest_exponent

Exponent = int | tuple[int, ...]

# A channel whose weights are 2^12 times smaller than another's is below the last bit of an 8-bit
# output. Its own scale would buy nothing, and would ask for shifts that no target has.
CHANNEL_SPREAD = 12


def constant_exponent(value: Array, spec: QuantSpec, depthwise: bool = False) -> Exponent:
    """MAX threshold of weights and biases; the finest unclipped scale of other constants.

    Per channel: along the last axis, or the last two ([h, w, c, m]) of `depthwise` filters.
    """
    if spec.role not in ("weight", "bias", "clip"):
        return finest_exponent(value, spec.bits, spec.signed)
    largest = np.abs(np.asarray(value))
    if spec.per_channel:
        columns = largest.reshape(*largest.shape[:2], -1) if depthwise else largest
        peaks = columns.max(axis=tuple(range(columns.ndim - 1)))
        peaks = np.maximum(peaks, np.ldexp(peaks.max(), -CHANNEL_SPREAD))
        return tuple(exponent_for_max(float(p) or 1.0, spec.bits, spec.signed) for p in peaks)
    return exponent_for_max(float(largest.max(initial=0)) or 1.0, spec.bits, spec.signed)
