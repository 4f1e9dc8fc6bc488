"""Softmaxes and layer norms of the integer program, as int32 ops on rows of codes.

Both compute exactly what `qgraph.program.ops` specifies. Roots and quotients of long numbers begin
with a number that is nearly correct, which a target finds in its own way. What is left, such as
`square - root^2`, is exact, and corrects them.
"""

from __future__ import annotations

from typing import Generic

from qgraph.backends.int32_values import INT32_MAX, Held, Int32Value, Int32Writer
from qgraph.backends.long_numbers import DIGIT_BITS, Digits, LongNumbers
from qgraph.ir.ops.standardize import SQUARE_BITS
from qgraph.ir.types import Codes
from qgraph.program.ops import SoftmaxProgramAttrs, StandardizeAttrs

LARGEST_ROOT = 1 << SQUARE_BITS // 2
ROOT_BITS = 12  # of `near_root` that are correct
QUOTIENT_BITS = 13  # of `near_quotient` that are correct
LARGEST_QUOTIENT = (1 << 15) + 1


class Int32Rows(Generic[Held]):
    """Ops on rows, written by an `Int32Writer`."""

    def __init__(self, writer: Int32Writer[Held]) -> None:
        self.writer = writer
        self.long = LongNumbers(writer)

    def softmax(
        self,
        codes: Int32Value[Held],
        largest: Int32Value[Held],
        table: Codes,
        count: int,
        attrs: SoftmaxProgramAttrs,
    ) -> Int32Value[Held]:
        """The softmax of rows of `count` codes; largest: the largest code of each row."""
        writer = self.writer
        distance = writer.subtract(largest, codes, (0, codes.high - codes.low))
        found = writer.entries(table, writer.clipped(distance, 0, len(table) - 1))
        sums = self.long.row_sum(found, count)
        total = self.long.upper(sums, 0, count * found.high)
        total = writer.within(total, int(table[0]), count * found.high)
        half = writer.shifted(total, 1)
        first = attrs.bits
        if (found.high << first) + half.high > INT32_MAX:
            # The upper bits of the quotient come first, as many as 32 bits allow.
            first = (INT32_MAX // found.high).bit_length() - 1
        numerator, shares = writer.times(found, 1 << first), None
        if first < attrs.bits:
            shares = writer.truncated(numerator, total)
            whole = writer.multiply(shares, total, (0, numerator.high))
            rest = writer.subtract(numerator, whole, (0, total.high - 1))
            numerator = writer.times(rest, 1 << attrs.bits - first)
            shares = writer.times(shares, 1 << attrs.bits - first)
        last = writer.truncated(writer.add(numerator, half), total)
        found = last if shares is None else writer.add(shares, last)
        return writer.clipped(found, 0, attrs.high)

    def standardize(
        self, codes: Int32Value[Held], count: int, attrs: StandardizeAttrs, limit: int
    ) -> Int32Value[Held]:
        """The layer norm of rows of `count` codes; limit: the largest result."""
        writer, long = self.writer, self.long
        writer.check(limit, LARGEST_QUOTIENT)
        x = writer.plus(codes, -((codes.low + codes.high + 1) // 2))
        total = long.upper(long.row_sum(x, count), 0, count * x.reach)
        apart = (count - 1) * (codes.high - codes.low)
        deviation = writer.subtract(writer.times(x, count), total, (-apart, apart))
        squares = long.row_sum(writer.multiply(x, x, (0, x.reach**2)), count)
        square = long.subtract(long.times(squares, count), long.square(total))
        square = long.plus(long.raised(square, 2 * attrs.guard), attrs.epsilon)
        root = self._above_root(long.natural(square, SQUARE_BITS))
        return self._quotient(deviation, attrs.shift, root, limit)

    def _above_root(self, square: Digits[Held]) -> Int32Value[Held]:
        """One more than the integer part of the root of a number below 2^52, in four digits."""
        writer, long = self.writer, self.long
        ends = (1, LARGEST_ROOT + (LARGEST_ROOT >> ROOT_BITS))
        halves = [
            {place - first: d for place, d in square.items() if first <= place < first + 2}
            for first in (2, 0)
        ]
        high, low = (
            long.upper(half, 0, LARGEST_ROOT - 1) if half else writer.number(0) for half in halves
        )
        near = Int32Value(writer.near_root(high, low), 0, ends[1])
        root = writer.clipped(near, *ends)
        error = (LARGEST_ROOT >> ROOT_BITS) + 1
        rest = long.subtract(square, long.square(root))
        upper = long.upper(rest, 1, error * (2 * ends[1] + error))
        step = writer.near_quotient(upper, DIGIT_BITS, rest[0], writer.times(root, 2))
        root = writer.add(root, Int32Value(step, -2 * error, 2 * error))
        root = writer.clipped(root, *ends)
        # The root of 2^52 has an error of 2 by Newton's step, and 1 + 2 by the quotient.
        error = 6
        rest = long.subtract(square, long.square(root))
        left = long.upper(rest, 0, error * (2 * LARGEST_ROOT + error))
        change = self._floor_of_few(left, writer.times(root, 2), error)
        double = writer.add(writer.times(root, 2), change)
        left = writer.subtract(
            left, writer.multiply(change, double, (-left.reach, left.reach)),
            (-2 * LARGEST_ROOT, 2 * LARGEST_ROOT),
        )  # fmt: skip
        root = writer.add(root, change, (0, LARGEST_ROOT))
        root = writer.subtract(root, writer.is_negative(left), (0, LARGEST_ROOT - 1))
        return writer.plus(root, 1)

    def _quotient(
        self, numerator: Int32Value[Held], shift: int, divisor: Int32Value[Held], limit: int
    ) -> Int32Value[Held]:
        """`numerator * 2^shift / divisor`, rounded to nearest, ties upwards; limit: the largest."""
        writer, long = self.writer, self.long
        bound = (limit + 1) * divisor.high >> shift
        numerator = writer.within(numerator, -bound, bound)
        held = writer.near_quotient(numerator, shift, None, divisor)
        error = 2 + (limit >> QUOTIENT_BITS)
        near = Int32Value(held, -limit - error, limit + error)
        # The rest of `2 * numerator * 2^shift + divisor`, divided by `2 * divisor`.
        odd = writer.plus(writer.times(near, 2), -1)
        product = {
            place: writer.multiply(odd, digit)
            for place, digit in long.carried({0: divisor}).items()
        }
        rest = long.subtract(long.raised({0: numerator}, shift + 1), product)
        double = writer.times(divisor, 2)
        left = long.upper(rest, 0, (error + 1) * double.high)
        change = self._floor_of_few(left, double, error + 1)
        return writer.add(near, change, (-limit, limit))

    def _floor_of_few(
        self, a: Int32Value[Held], b: Int32Value[Held], most: int
    ) -> Int32Value[Held]:
        """`a // b` if it is known to be from -most to most."""
        writer = self.writer
        raised = writer.add(a, writer.times(b, most), (0, (2 * most + 1) * b.high))
        found = writer.truncated(raised, b)
        return writer.plus(writer.within(found, 0, 2 * most), -most)
