"""Sums that executors of `.tflite` files multiply by a power of two without an error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

INT32_MAX = (1 << 31) - 1


class SumLimits(ABC):
    """left: the largest left shift that executors support."""

    left: int

    @abstractmethod
    def largest_at(self, shift: int) -> int:
        """The largest magnitude that is shifted right by `shift` and saturated without an error."""


@dataclass(frozen=True)
class FixedPointSums(SumLimits):
    """32-bit sums times a multiplier of 2^30.

    largest: of all sums. exact_from: the first shift that does not begin with a left shift in 32
    bits.
    """

    largest: int
    left: int
    exact_from: int

    def largest_at(self, shift: int) -> int:
        held = INT32_MAX >> 1 - shift if shift < self.exact_from else INT32_MAX
        return min(self.largest, held)


@dataclass(frozen=True)
class ReducedMultiplierSums(SumLimits):
    """64-bit sums times a multiplier that is reduced to 2^14; the results have 32 bits.

    Kernels of int16 specify sums below 2^47 and left shifts up to 6. For right shifts above 32 the
    multiplier is 0.
    """

    largest: int = (1 << 47) - 1
    left: int = 6
    right: int = 32

    def largest_at(self, shift: int) -> int:
        if shift < -self.left:
            held = 0
        elif shift > self.right:
            held = (1 << shift - 1) - 1  # which are rounded to 0
        else:
            held = INT32_MAX >> -shift if shift < 0 else INT32_MAX << shift
        return min(self.largest, held)
