"""Rounding of codes under a quadratic error in plain numpy; qgraph.kernels equals it to the bit."""

from __future__ import annotations

import numpy as np

from qgraph.kernels.plain import Float64

# A step must gain more than rounding errors; otherwise steps could repeat without end.
HALF = 0.5 + 1e-9


def round_in_turn(v: Float64, lower: Float64, lo: int, hi: int) -> Float64:
    """Do what `kernels.round_in_turn` does."""
    left, codes = v.copy(), np.empty_like(v)
    for i in range(v.shape[1]):
        codes[:, i] = np.rint(np.clip(left[:, i], lo, hi)) + 0.0
        left[:, i + 1 :] += lower[:, i + 1 :, i, None] * (v[:, i] - codes[:, i])[:, None]
    return codes


def descend(codes: Float64, v: Float64, hessian: Float64, lo: int, hi: int, sweeps: int) -> Float64:
    """Do what `kernels.descend` does."""
    codes, slope = codes.copy(), np.zeros_like(v)
    for i in range(v.shape[1]):
        slope += hessian[:, :, i, None] * (codes[:, i] - v[:, i])[:, None]
    for _ in range(sweeps):
        moved = False
        for i in range(v.shape[1]):
            wanted = np.where(slope[:, i] > 0, codes[:, i] - 1, codes[:, i] + 1)
            pays = np.abs(slope[:, i]) > hessian[:, i, i, None] * HALF
            step = np.where(pays & (wanted >= lo) & (wanted <= hi), wanted - codes[:, i], 0.0)
            if step.any():
                moved = True
                codes[:, i] += step
                slope += hessian[:, :, i, None] * step[:, None]
        if not moved:
            break
    return codes
