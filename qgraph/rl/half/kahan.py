"""Kahan summation: the rounding error of an addition is corrected in the next one (Kahan, 1965).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from qgraph.foreign import Tensor
from qgraph.rl.half.precision import Rounding, exact


def kahan_add(total: Tensor, lost: Tensor, value: Tensor, rounded: Rounding = exact) -> None:
    """Add `value` to the variable `total`; `lost`, zeros at first, is the error of `total`.

    Algorithm 2. All three have one type and shape.
    """
    wanted = rounded(value - lost)
    found = rounded(total + wanted)
    lost.assign(rounded(rounded(found - total) - wanted))
    total.assign(found)
