"""Numbers of more than 32 bits as several int32 tensors: `sum of digits[i] * 2^(13 i)`.

Digits may be any int32 numbers; `carried` brings them into 0..2^13-1 except the highest one. The
product of two such digits has 26 bits, so several of them can be added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeAlias

from qgraph.backends.int32_values import INT32_MAX, Held, Int32Value, Int32Writer, products

DIGIT_BITS = 13
BASE = 1 << DIGIT_BITS

# The digits of a number by place; those that are left out are 0.
Digits: TypeAlias = Mapping[int, Int32Value[Held]]


class LongNumbers(Generic[Held]):
    """Arithmetic on digits, written by an `Int32Writer`."""

    def __init__(self, writer: Int32Writer[Held]) -> None:
        self.writer = writer

    def carried(self, number: Digits[Held]) -> Digits[Held]:
        """The same number with digits in 0..2^13-1, except the highest one: it is small."""
        writer, found = self.writer, dict[int, Int32Value[Held]]()
        last, place, carry = max(number), 0, None
        while place <= last or carry is not None:
            digit = number.get(place)
            if carry is not None:
                digit = carry if digit is None else writer.add(digit, carry)
            carry = None
            if digit is not None:
                small = 0 <= digit.low <= digit.high < BASE
                if not small and (place < last or digit.reach >= BASE):
                    carry = writer.shifted(digit, DIGIT_BITS)
                    whole = writer.times(carry, BASE, (digit.low - BASE + 1, max(digit.high, 0)))
                    digit = writer.subtract(digit, whole, (0, BASE - 1))
                found[place] = digit
            place += 1
        return found

    def natural(self, number: Digits[Held], bits: int) -> Digits[Held]:
        """Carried digits of a number that is known to be in 0..2^bits-1."""
        last = (bits - 1) // DIGIT_BITS
        digits = self.carried(number)
        found = {p: self.writer.within(d, 0, BASE - 1) for p, d in digits.items() if p < last}
        if max(digits) >= last:
            top = self.upper(digits, last, (1 << bits) - 1)
            found[last] = self.writer.within(top, 0, (1 << bits - DIGIT_BITS * last) - 1)
        return found

    def add(self, a: Digits[Held], b: Digits[Held]) -> Digits[Held]:
        return self._combined(a, b, self.writer.add)

    def subtract(self, a: Digits[Held], b: Digits[Held]) -> Digits[Held]:
        return self._combined(a, b, self.writer.subtract)

    def _combined(
        self,
        a: Digits[Held],
        b: Digits[Held],
        combine: Callable[[Int32Value[Held], Int32Value[Held]], Int32Value[Held]],
    ) -> Digits[Held]:
        """Digits that would exceed 32 bits are carried first."""
        if any(a[p].reach + b[p].reach > INT32_MAX for p in {*a} & {*b}):
            a, b = self.carried(a), self.carried(b)
        found = dict(a)
        for place, digit in b.items():
            held = found.get(place)
            found[place] = combine(self.writer.number(0) if held is None else held, digit)
        return found

    def plus(self, a: Digits[Held], number: int) -> Digits[Held]:
        """The sum with a number from 0 on."""
        found, place = dict(a), 0
        while number:
            number, digit = divmod(number, BASE)
            if digit:
                held = found.get(place)
                writer = self.writer
                found[place] = writer.number(digit) if held is None else writer.plus(held, digit)
            place += 1
        return found

    def times(self, a: Digits[Held], factor: int) -> Digits[Held]:
        """The product with a number; digits that would exceed 32 bits are carried first."""
        if any(digit.reach * abs(factor) > INT32_MAX for digit in a.values()):
            a = self.carried(a)
        return {place: self.writer.times(digit, factor) for place, digit in a.items()}

    def raised(self, a: Digits[Held], bits: int) -> Digits[Held]:
        """The product with 2^bits."""
        places, rest = divmod(bits, DIGIT_BITS)
        return {place + places: digit for place, digit in self.times(a, 1 << rest).items()}

    def square(self, value: Int32Value[Held]) -> Digits[Held]:
        """The square of an int32 value."""
        writer = self.writer
        if products(value, value)[1] <= INT32_MAX:
            return {0: writer.multiply(value, value)}
        digits, found = [*self.carried({0: value}).items()], dict[int, Int32Value[Held]]()
        for i, (place, digit) in enumerate(digits):
            for above, other in digits[i:]:
                both = writer.multiply(digit, other)
                both = both if above == place else writer.times(both, 2)
                found = dict(self.add(found, {place + above: both}))
        return found

    def row_sum(self, x: Int32Value[Held], count: int) -> Digits[Held]:
        """The sums of rows of `count` numbers, of which a target may sum a few bits at a time."""
        writer, most = self.writer, self.writer.largest_row_sum
        writer.check(count, most)
        bits, part, found = (most // count).bit_length() - 1, 0, dict[int, Int32Value[Held]]()
        while x.reach * count > most:
            above = writer.shifted(x, bits)
            whole = writer.times(above, 1 << bits, (x.low - (1 << bits), max(x.high, 0)))
            low = writer.subtract(x, whole, (0, (1 << bits) - 1))
            found = dict(self.add(found, self._summed(low, count, part)))
            x, part = above, part + bits
        return self.add(found, self._summed(x, count, part))

    def _summed(self, x: Int32Value[Held], count: int, bits: int) -> Digits[Held]:
        """The sums of rows times 2^bits."""
        held = self.writer.write_row_sum(x.held)
        return self.raised({0: Int32Value(held, count * x.low, count * x.high)}, bits)

    def upper(self, number: Digits[Held], place: int, reach: int) -> Int32Value[Held]:
        """`sum of digits[i] * 2^(13 (i - place))` over all i from `place` on.

        reach: a bound of the magnitude of the whole number, which the caller knows.
        """
        writer, last = self.writer, max(number)
        found = number[last]
        for at in range(last - 1, place - 1, -1):
            below = sum(d.reach << DIGIT_BITS * i for i, d in number.items() if i < at)
            most, digit = (reach + below) >> DIGIT_BITS * at, number.get(at)
            room = most + (digit.reach if digit is not None else 0)
            found = writer.times(found, BASE, (-room, room))
            if digit is not None:
                found = writer.add(found, digit, (-most, most))
        return found
