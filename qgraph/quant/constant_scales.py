"""Scales of constants: weights, biases, and what else does not depend on data."""

from __future__ import annotations

import numpy as np

from qgraph.choices import WeightMethod
from qgraph.ir.types import Array, Exponent, QuantSpec, Role
from qgraph.numerics import exponent_for_max, finest_exponent

# A channel whose weights are 2^12 times smaller than another's is below the last bit of an 8-bit
# output. Its own scale would buy nothing, and would ask for shifts that no target has.
CHANNEL_SPREAD = 12


# Thresholds of weights: the largest one; or three standard deviations, to be trained from there
# (TQT, table 2), about 0, as the quantizer is. Those that clip nothing stay.
DEVIATIONS = 3.0


def constant_exponent(
    value: Array,
    spec: QuantSpec,
    depthwise: bool = False,
    method: WeightMethod = WeightMethod.MAX,
) -> Exponent:
    """Threshold of weights by `method`, MAX of biases; the finest unclipped scale of the rest.

    Per channel, always by MAX: along the last axis, or the last two ([h, w, c, m]) of `depthwise`
    filters.
    """
    if spec.role not in (Role.WEIGHT, Role.BIAS, Role.CLIP):
        return finest_exponent(value, spec.bits, spec.signed)
    largest = np.abs(np.asarray(value))
    if spec.per_channel and largest.size:
        columns = largest.reshape(*largest.shape[:2], -1) if depthwise else largest
        peaks = columns.max(axis=tuple(range(columns.ndim - 1)))
        peaks = np.maximum(peaks, np.ldexp(peaks.max(), -CHANNEL_SPREAD))
        return tuple(exponent_for_max(float(p) or 1.0, spec.bits, spec.signed) for p in peaks)
    threshold = float(largest.max(initial=0))
    if method == WeightMethod.DEVIATIONS and spec.role == Role.WEIGHT and largest.size:
        deviation = float(np.sqrt(np.mean(np.square(largest, dtype=np.float64))))
        threshold = min(threshold, DEVIATIONS * deviation)
    return exponent_for_max(threshold or 1.0, spec.bits, spec.signed)
