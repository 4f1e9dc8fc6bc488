"""Arithmetic on int32 tensors, for targets that have no operator of 64 bits.

Every value carries its lowest and its highest number. A result that may exceed 32 bits is refused
when it is written, so nothing wraps around when a file runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from qgraph.enums import StrEnum
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Codes

INT32_MAX = (1 << 31) - 1
Held = TypeVar("Held")
Ends = tuple[int, int]  # the lowest and the highest number


class Int32Op(StrEnum):
    """Elementwise ops of two tensors. DIVIDE rounds towards 0."""

    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"


@dataclass(frozen=True)
class Int32Value(Generic[Held]):
    """A tensor of a target with numbers from `low` to `high`."""

    held: Held
    low: int
    high: int

    @property
    def reach(self) -> int:
        """The largest magnitude."""
        return max(-self.low, self.high)


class Int32Writer(ABC, Generic[Held]):
    """Writes operators on int32 tensors; operands of one row are repeated along the last axis.

    node: the step that is written, which refusals name.
    """

    def __init__(self, node: str) -> None:
        self.node = node

    # -- what a target writes ----------------------------------------------------------------

    @abstractmethod
    def write(self, op: Int32Op, a: Held, b: Held) -> Held:
        """An elementwise op."""

    @abstractmethod
    def write_number(self, number: int) -> Held:
        """A constant that is repeated along all axes."""

    @abstractmethod
    def write_entries(self, table: Codes, index: Held) -> Held:
        """The entries of a table at indices from 0."""

    @property
    @abstractmethod
    def largest_row_sum(self) -> int:
        """The largest magnitude of sums of rows."""

    @abstractmethod
    def write_row_sum(self, x: Held) -> Held:
        """The sums of rows, with size 1 along the last axis."""

    @abstractmethod
    def near_quotient(
        self,
        high: Int32Value[Held],
        bits: int,
        low: Int32Value[Held] | None,
        divisor: Int32Value[Held],
    ) -> Held:
        """About `(high * 2^bits + low) / divisor`, for divisors above 0.

        The error is below 1 + 2^-13 of the quotient, whose magnitude is at most 2^15.
        """

    @abstractmethod
    def near_root(self, high: Int32Value[Held], low: Int32Value[Held]) -> Held:
        """About the root of `high * 2^26 + low`, with both below 2^26.

        The error is below 1 for numbers below 2^24, and at most 2^-12 of the root for others.
        """

    # -- arithmetic --------------------------------------------------------------------------

    def number(self, number: int) -> Int32Value[Held]:
        self.check(abs(number))
        return Int32Value(self.write_number(number), number, number)

    def within(self, value: Int32Value[Held], low: int, high: int) -> Int32Value[Held]:
        """A value with limits that the caller knows to be narrower."""
        return replace(value, low=max(value.low, low), high=min(value.high, high))

    def add(
        self, a: Int32Value[Held], b: Int32Value[Held], known: Ends | None = None
    ) -> Int32Value[Held]:
        """The sum. known: limits of the result that the caller knows, here and below."""
        return self._made(Int32Op.ADD, a, b, (a.low + b.low, a.high + b.high), known)

    def subtract(
        self, a: Int32Value[Held], b: Int32Value[Held], known: Ends | None = None
    ) -> Int32Value[Held]:
        return self._made(Int32Op.SUBTRACT, a, b, (a.low - b.high, a.high - b.low), known)

    def multiply(
        self, a: Int32Value[Held], b: Int32Value[Held], known: Ends | None = None
    ) -> Int32Value[Held]:
        return self._made(Int32Op.MULTIPLY, a, b, products(a, b), known)

    def plus(self, a: Int32Value[Held], number: int) -> Int32Value[Held]:
        if number < 0:
            return self.subtract(a, self.number(-number))
        return self.add(a, self.number(number)) if number else a

    def times(
        self, a: Int32Value[Held], number: int, known: Ends | None = None
    ) -> Int32Value[Held]:
        return a if number == 1 else self.multiply(a, self.number(number), known)

    def clipped(self, a: Int32Value[Held], low: int, high: int) -> Int32Value[Held]:
        if a.low < low:
            a = self._made(Int32Op.MAXIMUM, a, self.number(low), (low, max(a.high, low)))
        if a.high > high:
            a = self._made(Int32Op.MINIMUM, a, self.number(high), (min(a.low, high), high))
        return a

    def is_negative(self, a: Int32Value[Held]) -> Int32Value[Held]:
        """1 where a is below 0, else 0."""
        return self.clipped(self.subtract(self.number(0), a), 0, 1)

    def truncated(self, a: Int32Value[Held], b: Int32Value[Held]) -> Int32Value[Held]:
        """`a / b` towards 0, for b above 0."""
        assert b.low >= 1
        quotients = [
            abs(n) // d * (1 if n >= 0 else -1) for n in (a.low, a.high) for d in (b.low, b.high)
        ]
        return self._made(Int32Op.DIVIDE, a, b, (min(quotients), max(quotients)))

    def floor(self, a: Int32Value[Held], b: Int32Value[Held]) -> Int32Value[Held]:
        """`a // b`, for b above 0."""
        if a.low >= 0:
            return self.truncated(a, b)
        quotient = self.truncated(a, b)
        whole = self.multiply(quotient, b, (a.low, max(a.high, 0)))
        rest = self.subtract(a, whole, (1 - b.high, b.high - 1))
        known = (a.low // b.low, max(a.high // d for d in (b.low, b.high)))
        return self.subtract(quotient, self.is_negative(rest), known)

    def shifted(self, a: Int32Value[Held], bits: int) -> Int32Value[Held]:
        """`a // 2^bits`."""
        if bits == 0:
            return a
        power = self.number(1 << bits)
        raised = -(-max(-a.low, 0) >> bits)
        if not raised:
            return self.truncated(a, power)
        if max(a.high, 0) + (raised << bits) > INT32_MAX:
            return self.floor(a, power)
        return self.plus(self.truncated(self.plus(a, raised << bits), power), -raised)

    def entries(self, table: Codes, index: Int32Value[Held]) -> Int32Value[Held]:
        """Entries of a table at indices from 0."""
        assert index.low >= 0
        assert index.high < len(table)
        held = self.write_entries(table, index.held)
        return Int32Value(held, int(table.min()), int(table.max()))

    def _made(
        self,
        op: Int32Op,
        a: Int32Value[Held],
        b: Int32Value[Held],
        ends: Ends,
        known: Ends | None = None,
    ) -> Int32Value[Held]:
        low, high = ends
        if known is not None:
            low, high = max(low, known[0]), min(high, known[1])
        self.check(max(-low, high))
        return Int32Value(self.write(op, a.held, b.held), low, high)

    def check(self, reach: int, most: int = INT32_MAX) -> None:
        """Raise UnsupportedError for a number above `most`."""
        if reach > most:
            raise UnsupportedError(
                f"needs numbers up to {reach:,}, but the int32 ops that compute it allow {most:,}",
                node=self.node,
                hint="use another format, such as `c` or `onnx-integer`",
            )


def products(a: Int32Value[Held], b: Int32Value[Held]) -> Ends:
    """The lowest and the highest product."""
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(ends), max(ends)
