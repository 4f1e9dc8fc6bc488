"""Ranges of codes: bounds of a result and of the partial sums that lead to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Ranged(Protocol):
    """Codes in `low..high`; `magnitude` bounds the partial sums that lead to them."""

    @property
    def low(self) -> int: ...

    @property
    def high(self) -> int: ...

    @property
    def magnitude(self) -> int: ...


@dataclass(frozen=True)
class Reach:
    """Range of the codes of a result and bound of its partial sums."""

    low: int
    high: int
    magnitude: int


def reach_of_sum(a: Ranged, b: Ranged) -> Reach:
    return Reach(a.low + b.low, a.high + b.high, a.magnitude + b.magnitude)


def reach_of_difference(a: Ranged, b: Ranged) -> Reach:
    return Reach(a.low - b.high, a.high - b.low, a.magnitude + b.magnitude)


def reach_of_product(a: Ranged, b: Ranged) -> Reach:
    ends = [p * q for p in (a.low, a.high) for q in (b.low, b.high)]
    return Reach(min(ends), max(ends), a.magnitude * b.magnitude)


def reach_of_products(a: Ranged, b: Ranged, terms: int) -> Reach:
    """The reach of a sum of at most `terms` products."""
    product = with_zero(reach_of_product(a, b))
    return Reach(product.low * terms, product.high * terms, product.magnitude * terms)


def reach_of_larger(a: Ranged, b: Ranged) -> Reach:
    return Reach(max(a.low, b.low), max(a.high, b.high), max(a.magnitude, b.magnitude))


def reach_of_smaller(a: Ranged, b: Ranged) -> Reach:
    return Reach(min(a.low, b.low), min(a.high, b.high), max(a.magnitude, b.magnitude))


def reach_of_any(inputs: Sequence[Ranged]) -> Reach:
    """The reach of a value that is one of the inputs."""
    return Reach(
        min(x.low for x in inputs), max(x.high for x in inputs), max(x.magnitude for x in inputs)
    )


def with_zero(reach: Ranged) -> Reach:
    """The reach of a value that may also be 0."""
    return Reach(min(reach.low, 0), max(reach.high, 0), reach.magnitude)
