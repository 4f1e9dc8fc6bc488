"""Rounding to integers under a quadratic error, instead of each number to its nearest.

For `groups` problems at once: find integers q [groups, k, n], with independent columns, for which
`(q - v)^T H (q - v)` is small. Numbers are rounded one after the other, and the numbers that are
not rounded yet compensate for each error (Frantar et al., GPTQ, 2023). Then steps of one that lower
the error are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qgraph import kernels
from qgraph.rewrite.constants import Float64

SWEEPS = 8  # largest number of passes over all rows in search of steps


@dataclass(frozen=True)
class QuadraticError:
    """The error `(q - v)^T H (q - v)`, ready for any targets v.

    hessian [groups, k, k], symmetric and positive definite. `order` [groups, k]: rows with the
    largest curvature are rounded first. `lower` [groups, k, k]: factors by which a row compensates
    for the errors of earlier rows; rows and columns are in this order.
    """

    hessian: Float64
    order: npt.NDArray[np.intp]
    lower: Float64

    @staticmethod
    def of(hessian: Float64) -> QuadraticError:
        order = np.argsort(-np.diagonal(hessian, axis1=1, axis2=2), axis=1, kind="stable")
        backwards = order[:, ::-1]
        turned = np.take_along_axis(
            np.take_along_axis(hessian, backwards[:, :, None], 1), backwards[:, None, :], 2
        )
        # H = M M^T with M upper: the error is the square of M^T (q - v), whose row j depends on
        # rows up to j only. It is 0 if row j is v_j + sum(M_ij / M_jj * (v_i - q_i)).
        lower = np.swapaxes(np.linalg.cholesky(turned)[:, ::-1, ::-1], 1, 2)
        return QuadraticError(
            hessian, order, lower / np.diagonal(lower, axis1=1, axis2=2)[:, :, None]
        )

    def rounded(self, v: Float64, lo: int, hi: int) -> Float64:
        """Integers in [lo, hi] with a small error, [groups, k, n]."""
        return kernels.descend(self.in_turn(v, lo, hi), v, self.hessian, lo, hi, SWEEPS)

    def in_turn(self, v: Float64, lo: int, hi: int) -> Float64:
        """Round row after row; later rows compensate for the error of each row."""
        order = self.order[:, :, None]
        codes = kernels.round_in_turn(np.take_along_axis(v, order, 1), self.lower, lo, hi)
        result = np.empty_like(codes)
        np.put_along_axis(result, order, codes, 1)
        return result
