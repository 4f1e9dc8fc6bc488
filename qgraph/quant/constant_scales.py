"""Scales of constants: weights, biases, and other values that do not depend on data."""

from __future__ import annotations

import numpy as np

from qgraph.choices import WeightMethod
from qgraph.ir.types import Array, Codes, Exponent, QuantSpec, Role
from qgraph.numerics import exponent_for_max, finest_exponent

# A channel whose weights are 2^12 times smaller than those of another channel is below the last bit
# of an 8-bit output. A separate scale would gain nothing, and would need shifts that no target has.
CHANNEL_SPREAD = 12
# Thresholds of weights: the largest weight; or, as the start of training (TQT, table 2),
# three standard deviations around 0 like the quantizer, or a quantile of all magnitudes. A
# threshold that clips nothing is not enlarged.
DEVIATIONS = 3.0
PERCENTILE = 0.99


def constant_exponent(
    value: Array,
    spec: QuantSpec,
    depthwise: bool = False,
    method: WeightMethod = WeightMethod.MAX,
) -> Exponent:
    """Thresholds of weights by `method`, of biases by MAX; other constants get the finest scale
    without clipping.

    Per channel along the last axis, or the last two ([h, w, c, m]) of `depthwise` filters.
    """
    if spec.role not in (Role.WEIGHT, Role.BIAS, Role.CLIP):
        return finest_exponent(value, spec.bits, spec.signed)
    if spec.role != Role.WEIGHT:
        method = WeightMethod.MAX
    magnitudes = np.abs(np.asarray(value))
    if spec.per_channel and magnitudes.size:
        columns = magnitudes.reshape(*magnitudes.shape[:2], -1) if depthwise else magnitudes
        columns = columns.reshape(-1, columns.shape[-1])
        least = np.ldexp(columns.max(), -CHANNEL_SPREAD)
        found = np.maximum(_thresholds(columns, method), least)
        return tuple(exponent_for_max(float(t) or 1.0, spec.bits, spec.signed) for t in found)
    threshold = float(_thresholds(magnitudes.reshape(-1, 1), method)[0]) if magnitudes.size else 0.0
    return exponent_for_max(threshold or 1.0, spec.bits, spec.signed)


def bias_excess(bias: Array, scale: Codes, spec: QuantSpec) -> Codes:
    """By how much exponents are too large for a bias on their scale, or too small if negative.

    scale: exponents of the accumulator, one or one for each channel; as many results, 0 for zeros.
    spec: that of the bias.
    """
    sizes = np.abs(bias.astype(np.float64)).reshape(-1)
    peaks = sizes if scale.ndim else sizes.max(initial=0, keepdims=True)
    finest = [exponent_for_max(float(p) or 1.0, spec.bits, spec.signed) for p in peaks]
    return np.where(peaks > 0, scale - np.array(finest), 0)


def _thresholds(magnitudes: Array, method: WeightMethod) -> Array:
    """The threshold of each column of magnitudes [n, columns]."""
    largest: Array = magnitudes.max(axis=0)
    match method:
        case WeightMethod.MAX:
            return largest
        case WeightMethod.DEVIATIONS:
            squares = np.square(magnitudes, dtype=np.float64)
            return np.asarray(np.minimum(largest, DEVIATIONS * np.sqrt(squares.mean(axis=0))))
        case WeightMethod.PERCENTILE:
            return np.asarray(np.quantile(magnitudes, PERCENTILE, axis=0))
