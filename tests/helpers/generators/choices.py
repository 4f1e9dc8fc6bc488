"""Random choices of a generator, from a seed or from hypothesis."""

from __future__ import annotations

import random
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Choices:
    """Choices from a seed, or from hypothesis, whose failing examples shrink: `st.randoms()` works
    too.

    The simplest choices are the first option of a pick, the smallest number and False.
    """

    def __init__(self, source: random.Random | int) -> None:
        self.source = random.Random(source) if isinstance(source, int) else source
        self.rng = np.random.default_rng(self.source.randint(0, 1 << 20))

    def number(self, low: int, high: int) -> int:
        """A whole number from low to high, inclusive."""
        return self.source.randint(low, high)

    def pick(self, *options: T) -> T:
        return options[self.number(0, len(options) - 1)]

    def chance(self, probability: float) -> bool:
        return self.number(0, 99) >= 100 - round(100 * probability)

    def some(self, options: range) -> tuple[int, ...]:
        """Any subset of the options, in order."""
        return tuple(option for option in options if self.chance(0.5))

    def permutation(self, size: int) -> list[int]:
        rest, order = list(range(size)), []
        while rest:
            order.append(rest.pop(self.number(0, len(rest) - 1)))
        return order
