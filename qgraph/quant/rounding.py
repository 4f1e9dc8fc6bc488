"""Rounding to integers under a quadratic error, instead of each number to its nearest.

For `groups` problems at once: find integers q [groups, k, n], columns independent, with a small
`(q - v)^T H (q - v)`. First one after the other, what one number's rounding does being made up by
those not yet rounded (Frantar et al., GPTQ, 2023); then steps of one that lower the error.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]

# Rows that are handled before the rest is brought up to date, by one product of matrices.
BLOCK = 64


def round_in_turn(v: Reals, hessian: Reals, lo: int, hi: int) -> Reals:
    """Round row after row, each one's error made up by the rows after it.

    v [groups, k, n], hessian [groups, k, k] positive definite, lo and hi the ends of the codes.
    """
    order = np.argsort(-np.diagonal(hessian, axis1=1, axis2=2), axis=1, kind="stable")
    sorted_h = np.take_along_axis(
        np.take_along_axis(hessian, order[:, :, None], 1), order[:, None, :], 2
    )
    # H^-1 = U^T U, U upper: row i of U is what rows after i take over from row i.
    upper = np.swapaxes(np.linalg.cholesky(np.linalg.inv(sorted_h)), 1, 2)
    left = np.take_along_axis(v, order[:, :, None], 1)
    codes = np.empty_like(left)
    count = v.shape[1]
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        errors = np.empty_like(left[:, start:stop])
        for i in range(start, stop):
            codes[:, i] = np.clip(np.rint(left[:, i]), lo, hi)
            errors[:, i - start] = (left[:, i] - codes[:, i]) / upper[:, i, i, None]
            left[:, i:stop] -= upper[:, i, i:stop, None] * errors[:, i - start, None]
        left[:, stop:] -= np.swapaxes(upper[:, start:stop, stop:], 1, 2) @ errors
    result = np.empty_like(codes)
    np.put_along_axis(result, order[:, :, None], codes, 1)
    return result


def descend(codes: Reals, v: Reals, hessian: Reals, lo: int, hi: int, sweeps: int = 8) -> Reals:
    """Steps of one, row after row, wherever one lowers the error, until none does."""
    codes = codes.copy()
    curvature = np.diagonal(hessian, axis1=1, axis2=2)[:, :, None]
    slope = hessian @ (codes - v)
    count = v.shape[1]
    for _ in range(sweeps):
        moved = False
        for start in range(0, count, BLOCK):
            rows = slice(start, min(start + BLOCK, count))
            before = codes[:, rows].copy()
            inner = slope[:, rows].copy()
            square = hessian[:, rows, rows]
            for i in range(inner.shape[1]):
                at = start + i
                # Worth it past half a step; the margin keeps rounding errors from going in circles.
                wanted = codes[:, at] - np.sign(inner[:, i])
                far = np.abs(inner[:, i]) > curvature[:, at] * (0.5 + 1e-9)
                step = np.where(
                    far & (wanted >= lo) & (wanted <= hi),
                    wanted - codes[:, at],
                    0.0,
                )
                if step.any():
                    codes[:, at] += step
                    inner += square[:, :, i, None] * step[:, None]
            change = codes[:, rows] - before
            if change.any():
                moved = True
                slope += hessian[:, :, rows] @ change
        if not moved:
            break
    return codes
