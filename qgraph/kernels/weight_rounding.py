"""Rounding of weights for the output of a layer."""

from __future__ import annotations

import numpy as np

from qgraph.kernels import native, plain_rounding
from qgraph.kernels.plain import Float64


def round_in_turn(v: Float64, lower: Float64, lo: int, hi: int) -> Float64:
    """Round to integers row by row; later rows correct the errors of earlier ones.

    Row j becomes the integer nearest to `v[j] + sum(lower[j, i] * (v[i] - q[i]))`, a sum over the
    rows i before j in their order. Products and sums are rounded one by one, in float64.

    Args:
        v: Values, float64 [groups, k, n].
        lower: Factors of errors, float64 [groups, k, k].
        lo: The least integer.
        hi: The greatest integer.

    Returns:
        Integers, float64 with the shape of `v`.

    Raises:
        ValueError: Shapes do not fit.
        TypeError: An array is not float64.

    Examples:
        >>> round_in_turn(np.array([[[0.4], [0.4]]]), np.array([[[0.0, 0], [1, 0]]]), -8, 7).ravel()
        array([0., 1.])
    """
    v, lower = _rounding_problem(v, lower)
    if native.extension is None or v.size == 0:
        return plain_rounding.round_in_turn(v, lower, lo, hi)
    codes = np.empty_like(v)
    native.extension.round_in_turn(v, lower, float(lo), float(hi), codes)
    return codes


def descend(codes: Float64, v: Float64, hessian: Float64, lo: int, hi: int, sweeps: int) -> Float64:
    """Reduce `(q - v)^T H (q - v)` of each column by steps of one.

    Steps are taken row by row wherever one reduces the error, until none does. Products and sums
    are rounded one by one, in float64.

    Args:
        codes: Integers to begin with, float64 [groups, k, n].
        v: Exact values, float64 [groups, k, n].
        hessian: Symmetric matrices H, float64 [groups, k, k].
        lo: The least integer.
        hi: The greatest integer.
        sweeps: The largest number of sweeps over all rows.

    Returns:
        Integers, float64 with the shape of `v`.

    Raises:
        ValueError: Shapes do not fit.
        TypeError: An array is not float64.

    Examples:
        >>> descend(np.zeros((1, 1, 1)), np.full((1, 1, 1), 2.2), np.ones((1, 1, 1)), -8, 7, 5)
        array([[[2.]]])
    """
    v, hessian = _rounding_problem(v, hessian)
    if codes.shape != v.shape or codes.dtype != np.float64:
        raise ValueError(f"codes must be float64 {v.shape}, not {codes.dtype} {codes.shape}")
    if native.extension is None or v.size == 0:
        return plain_rounding.descend(codes, v, hessian, lo, hi, sweeps)
    codes = codes.copy(order="C")
    native.extension.descend(v, hessian, float(lo), float(hi), sweeps, codes)
    return codes


def _rounding_problem(v: Float64, square: Float64) -> tuple[Float64, Float64]:
    if v.dtype != np.float64 or square.dtype != np.float64:
        raise TypeError(f"expected float64 arrays, not {v.dtype} and {square.dtype}")
    if v.ndim != 3 or square.shape != (*v.shape[:2], v.shape[1]):
        raise ValueError(f"expected [groups, k, n] and [groups, k, k]: {v.shape}, {square.shape}")
    return np.ascontiguousarray(v), np.ascontiguousarray(square)
