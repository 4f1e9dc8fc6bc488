"""An `Int32Writer` that computes in numpy, with the worst errors that a target may have."""

from __future__ import annotations

import numpy as np

from qgraph.backends.int32_rows import QUOTIENT_BITS, ROOT_BITS
from qgraph.backends.int32_values import INT32_MAX, Int32Op, Int32Value, Int32Writer


class NumpyInt32(Int32Writer[np.ndarray]):
    """worst: errors of roots and quotients from -1 to 1 times the largest allowed ones."""

    largest_row_sum = INT32_MAX

    def __init__(self, worst: float = 0, largest_row_sum: int = INT32_MAX) -> None:
        super().__init__("rows")
        self.worst, self.largest_row_sum = worst, largest_row_sum
        self.ops = 0

    def write(self, op: Int32Op, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        self.ops += 1
        match op:
            case Int32Op.ADD:
                made = a + b
            case Int32Op.SUBTRACT:
                made = a - b
            case Int32Op.MULTIPLY:
                made = a * b
            case Int32Op.DIVIDE:
                assert (b > 0).all()
                made = np.abs(a) // b * np.sign(a)
            case Int32Op.MAXIMUM:
                made = np.maximum(a, b)
            case Int32Op.MINIMUM:
                made = np.minimum(a, b)
        return held(made)

    def write_number(self, number: int) -> np.ndarray:
        return held(np.array(number, np.int64))

    def write_entries(self, table: np.ndarray, index: np.ndarray) -> np.ndarray:
        return table[index]

    def write_row_sum(self, x: np.ndarray) -> np.ndarray:
        assert np.abs(x).sum(-1).max() <= self.largest_row_sum
        return held(x.sum(-1, keepdims=True))

    def near_quotient(self, high, bits, low, divisor) -> np.ndarray:
        wide = np.ldexp(high.held.astype(float), bits) + (0 if low is None else low.held)
        exact = wide / divisor.held
        return np.trunc(exact + self.worst * np.ldexp(np.abs(exact), -QUOTIENT_BITS)).astype(int)

    def near_root(self, high, low) -> np.ndarray:
        exact = np.sqrt(np.ldexp(high.held.astype(float), 26) + low.held)
        error = np.where(exact < 1 << ROOT_BITS, 0, np.ldexp(exact, -ROOT_BITS))
        return np.trunc(exact + self.worst * error).astype(int)

    def _made(self, *args: object) -> Int32Value[np.ndarray]:
        made = super()._made(*args)
        checked(made)
        return made

    def within(self, value, low, high):
        return checked(super().within(value, low, high))


def checked(value: Int32Value[np.ndarray]) -> Int32Value[np.ndarray]:
    """The value; its numbers must be within its limits."""
    assert value.low <= value.held.min() and value.held.max() <= value.high, value
    return value


def held(made: np.ndarray) -> np.ndarray:
    assert np.abs(made).max() <= INT32_MAX
    return made
