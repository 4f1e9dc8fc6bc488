"""Division, remainders and ranges of small tensors that graphs compute shapes with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qgraph.enums import StrEnum
from qgraph.frontends.partial import MAX_TRACKED, Partial, elementwise
from qgraph.ir.types import Array


class Quotient(StrEnum):
    """How quotients are rounded. Those of integers always are."""

    PLAIN = "plain"  # of integers: towards zero
    FLOOR = "floor"
    TRUNCATED = "truncated"


def divided(args: Sequence[Partial], kind: Quotient) -> Partial | None:
    """A quotient; None where an integer is divided by a known 0."""
    if args[0].values.dtype.kind == "f":
        return elementwise(_FLOATS[kind], args)
    if _by_zero(args[1]):
        return None
    if kind is Quotient.FLOOR:
        return elementwise(lambda x, y: x // _nonzero(y), args)
    return elementwise(lambda x, y: np.sign(x) * np.sign(y) * (abs(x) // _nonzero(abs(y))), args)


def remainder(args: Sequence[Partial]) -> Partial | None:
    """The remainder of a quotient that is rounded down; None for a known divisor of 0."""
    return None if _by_zero(args[1]) else elementwise(lambda x, y: x % _nonzero(y), args)


def number_range(args: Sequence[Partial]) -> Partial | None:
    """Numbers from a start to a limit by steps; None for one that is unknown, endless or long."""
    if not all(a.complete for a in args) or not args[2].values:
        return None
    start, limit, delta = (a.values.item() for a in args)
    if not abs((limit - start) / delta) <= MAX_TRACKED:  # NaN neither
        return None
    return Partial.known(np.arange(start, limit, delta, dtype=args[0].values.dtype))


_FLOATS: Mapping[Quotient, Callable[[Array, Array], Array]] = {
    Quotient.PLAIN: np.true_divide,
    Quotient.FLOOR: lambda x, y: np.floor(np.true_divide(x, y)),
    Quotient.TRUNCATED: lambda x, y: np.trunc(np.true_divide(x, y)),
}


def _by_zero(divisor: Partial) -> bool:
    return bool(np.any(divisor.values[~divisor.missing] == 0))


def _nonzero(values: Array) -> Array:
    """Unknown elements hold 0: any other number is a valid divisor."""
    return np.where(values == 0, 1, values)
