"""Requantization in integer ops: rounding shifts, with a Div that rounds towards zero.

Below 0, a Div by 2^s is not a shift. Therefore a multiple of 2^s that makes every code positive is
added before it and subtracted after it. Rounding is a further term, with half = 2^(s-1):

    floor       0
    half_up     half
    half_away   half, minus 1 if the code is below 0
    half_even   half - 1, plus 1 if the floor is odd, which is bit s of the code
    double      1 if the code is odd; then as half_away, or as half_up for s = 1
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qgraph.ir.types import Codes, Rounding
from qgraph.numerics import round_shift

INT32 = (1 << 31) - 1

# From an op, a value and numbers to the result of the op.
Operate = Callable[[str, str, npt.ArrayLike], str]


@dataclass(frozen=True)
class Requantize:
    """Codes in `low..high` shifted right by `shift` (left if negative), then saturated or wrapped.

    `shift` is one number, or one for each channel; so is everything that follows from it.
    """

    low: int
    high: int
    shift: Codes
    rounding: str
    wraps: bool
    fits_low: int
    fits_high: int

    @property
    def right(self) -> Codes:
        """Shifts to the right, limited to the number of bits: larger ones give the same."""
        bits = max(-self.low, self.high).bit_length()
        return np.minimum(np.maximum(self.shift, 0), bits + 2)

    @property
    def left(self) -> Codes:
        return np.minimum(np.maximum(-self.shift, 0), 61)

    @property
    def lift(self) -> np.int64:
        """A multiple of every 2^right that raises the lowest code to 0 or above."""
        if self.low >= 0 or not self.right.any():
            return np.int64(0)
        return np.int64(1) << max(int(self.right.max()), (-self.low).bit_length())

    @property
    def dtype(self) -> str:
        """A type that holds every number in the computation."""
        before = max(-self.low, self.high) + int(self.lift) + (1 << int(self.right.max()))
        behind = int(np.abs(self._shifted_ends()).max()) + max(-self.fits_low, self.fits_high)
        return "int32" if max(before, behind) <= INT32 else "int64"

    def emit(self, value: str, operate: Operate) -> str:
        """Write the nodes; `value` and the result have type `dtype`."""
        if self.right.any():
            value = self._divided(value, operate)
        if self.left.any():
            limit = np.int64(1) << (62 - self.left)
            if max(-self.low, self.high) > limit.min():
                value = operate("Min", operate("Max", value, -limit), limit)
            value = operate("Mul", value, np.int64(1) << self.left)
        return self._fitted(value, operate)

    def _divided(self, value: str, operate: Operate) -> str:
        right, whole = self.right, np.int64(1) << self.right
        lifted, added = self._rounded(value, operate)
        if (added + self.lift).any():
            lifted = operate("Add", lifted, np.asarray(added + self.lift))
        divided = operate("Div", lifted, whole)
        return operate("Sub", divided, self.lift >> right) if self.lift else divided

    def _rounded(self, value: str, operate: Operate) -> tuple[str, Codes]:
        """The value and a number to add, so that rounding down the sum gives the right rounding."""
        right, whole = self.right, np.int64(1) << self.right
        half = np.asarray(whole >> 1)  # 0 without a shift
        match Rounding(self.rounding):
            case Rounding.FLOOR:
                return value, np.asarray(np.int64(0))
            case Rounding.HALF_UP:
                return value, half
            case Rounding.HALF_EVEN:
                odd = operate("BitwiseAnd", value, np.where(right > 0, whole, 0))
                even = operate("Add", value, operate("Min", odd, np.int64(1)))
                return even, np.where(right > 0, half - 1, 0)
            case Rounding.HALF_AWAY:
                return self._pulled(value, right > 0, operate), half
            case Rounding.DOUBLE:
                odd = operate("BitwiseAnd", value, np.where(right > 1, 1, 0))
                return self._pulled(operate("Add", value, odd), right > 1, operate), half

    def _pulled(self, value: str, where: npt.NDArray[np.bool_], operate: Operate) -> str:
        """Minus 1 if the code is below 0 and the channel is one of `where`."""
        if self.low >= 0 or not where.any():
            return value
        below = operate("Max", value, np.where(where, -1, 0))
        return operate("Add", value, operate("Min", below, np.int64(0)))

    def _fitted(self, value: str, operate: Operate) -> str:
        ends = self._shifted_ends()
        low, high = np.int64(self.fits_low), np.int64(self.fits_high)
        if ends.min() >= low and ends.max() <= high:
            return value
        if not self.wraps:
            value = operate("Max", value, low) if ends.min() < low else value
            return operate("Min", value, high) if ends.max() > high else value
        moved = operate("Sub", value, low) if low else value
        kept = operate("BitwiseAnd", moved, high - low)
        return operate("Add", kept, low) if low else kept

    def _shifted_ends(self) -> Codes:
        """Results of the lowest and the highest code, for each shift."""
        ends = [
            np.asarray(round_shift(np.asarray(v, np.int64), self.shift, self.rounding))
            for v in (self.low, self.high)
        ]
        return np.stack(ends)
