"""Kahan summation: the rounding error of an addition is corrected in the next one (Kahan, 1965).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from qgraph.foreign import Tensor
from qgraph.rl.half.precision import Rounding, exact


def kahan_add(
    total: Tensor, compensation: Tensor, value: Tensor, rounded: Rounding = exact
) -> None:
    """Add `value` to the variable `total` (Algorithm 2).

    compensation: a variable, zeros at first, the rounding error of `total`. All three have one type
    and shape.
    """
    corrected = rounded(value - compensation)
    result = rounded(total + corrected)
    compensation.assign(rounded(rounded(result - total) - corrected))
    total.assign(result)
