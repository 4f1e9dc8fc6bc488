"""Squared errors of a layer's output, from second moments of its inputs or row by row.

Products are in float32. Its precision is sufficient, because the results only choose roundings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from qgraph.ir.types import Array
from qgraph.parallel import Each
from qgraph.rewrite.constants import Float64

# Rows whose products are added in float32; sums of 8-bit codes on one scale are exact.
ROWS = 256
# Columns of a product, and groups of products, in one task.
COLUMNS, GROUPS = 256, 64
FLOAT32_MAX = float(np.finfo(np.float32).max)
FLOAT32_MIN_PRODUCT = 2.0**-100  # smaller products lose digits in float32, or become 0


class OutputErrors(Protocol):
    """Errors of a layer's output for changed weights."""

    def errors(self, off: Float64, each: Each, /) -> Float64:
        """Sums of squares of `x @ off - rest`, [groups, n]; off [groups, k, n]."""

    def best_share(self, off: Float64, each: Each, /) -> float:
        """The factor of `off`, from 0 to 1, with the least sum of errors."""


@dataclass(frozen=True)
class RowErrors:
    """x [groups, rows, k], rest [groups, rows, n], float32, for fewer rows than inputs."""

    x: Array
    rest: Array

    def errors(self, off: Float64, each: Each) -> Float64:
        """Do what `OutputErrors.errors` does."""
        result = np.empty((off.shape[0], off.shape[2]))
        wide = _needs_wide(_reach(self.x), _reach(off), off.shape[1])

        def piece(at: tuple[slice, slice]) -> None:
            groups, columns = at
            some = _in(wide, off[groups, :, columns])
            error = _in(wide, self.x[groups]) @ some
            error = error - self.rest[groups, :, columns]
            result[groups, columns] = np.einsum("grn,grn->gn", error, error, dtype=np.float64)

        for _ in each(piece, [*_pieces(off.shape[0], off.shape[2])]):
            pass
        return result

    def best_share(self, off: Float64, each: Each) -> float:
        """Do what `OutputErrors.best_share` does."""
        power = np.einsum("grn,grn->", self.rest, self.rest, dtype=np.float64)
        lower, upper = (float(self.errors(side * off, each).sum()) for side in (1.0, -1.0))
        return _share(gain=(upper - lower) / 4, bend=(upper + lower) / 2 - float(power))


@dataclass(frozen=True)
class OutputMoments:
    """Sums over rows of a layer: of `x^T x` and `x^T rest`, and of squares of `rest`.

    inputs [groups, k, k], cross [groups, k, n], power [groups, n]; see `LayerRows`.
    """

    inputs: Float64
    cross: Float64
    power: Float64

    @staticmethod
    def of(x: Array, rest: Array, each: Each) -> OutputMoments:
        """x [groups, rows, k], rest [groups, rows, n], float32."""
        power = np.einsum("grn,grn->gn", rest, rest, dtype=np.float64)
        return OutputMoments(second_moments(x, each), cross_moments(x, rest, each), power)

    @cached_property
    def _narrow_inputs(self) -> Array:
        with np.errstate(over="ignore"):  # an infinite sum is not used
            return self.inputs.astype(np.float32)

    @cached_property
    def _reach_of_inputs(self) -> float:
        return _reach(self.inputs)

    def errors(self, off: Float64, each: Each) -> Float64:
        """Do what `OutputErrors.errors` does, with k * k products per column, not rows * k."""
        result = np.empty(self.power.shape)
        wide = _needs_wide(self._reach_of_inputs, _reach(off), off.shape[1])
        inputs = self.inputs if wide else self._narrow_inputs

        def piece(at: tuple[slice, slice]) -> None:
            groups, columns = at
            some = off[groups, :, columns]
            change = inputs[groups] @ _in(wide, some)
            change = change - 2 * self.cross[groups, :, columns]
            error = np.einsum("gkn,gkn->gn", some, change) + self.power[groups, columns]
            result[groups, columns] = np.maximum(error, 0)

        for _ in each(piece, [*_pieces(off.shape[0], off.shape[2])]):
            pass
        return result

    def best_share(self, off: Float64, each: Each) -> float:
        """Do what `OutputErrors.best_share` does."""
        gain = float((off * self.cross).sum())
        change = float((self.errors(off, each) - self.power).sum())
        return _share(gain, bend=change + 2 * gain)


def _share(gain: float, bend: float) -> float:
    """The minimum of `bend * share^2 - 2 * gain * share` for shares in 0 to 1."""
    if not gain > 0:  # NaN too
        return 0.0
    return gain / bend if gain < bend else 1.0


def second_moments(x: Array, each: Each) -> Float64:
    """`x^T x` of each group, [groups, k, k], symmetric to the bit; x [groups, rows, k], float32."""
    result = np.empty((x.shape[0], x.shape[2], x.shape[2]))
    wide = _needs_wide(_reach(x), _reach(x), ROWS)

    def piece(at: tuple[slice, slice, slice]) -> None:
        groups, left, right = at
        found = _product(x[groups, :, left], x[groups, :, right], wide)
        result[groups, left, right] = found
        if left != right:
            result[groups, right, left] = np.swapaxes(found, 1, 2)

    pieces = [
        (groups, left, right)
        for groups, left in _pieces(x.shape[0], x.shape[2])
        for right in _ranges(left.stop, COLUMNS)
    ]
    for _ in each(piece, pieces):
        pass
    return result


def cross_moments(x: Array, rest: Array, each: Each) -> Float64:
    """`x^T rest` of each group, [groups, k, n]."""
    result = np.empty((x.shape[0], x.shape[2], rest.shape[2]))
    wide = _needs_wide(_reach(x), _reach(rest), ROWS)

    def piece(at: tuple[slice, slice]) -> None:
        groups, columns = at
        result[groups, :, columns] = _product(x[groups], rest[groups, :, columns], wide)

    for _ in each(piece, [*_pieces(x.shape[0], rest.shape[2])]):
        pass
    return result


def _product(left: Array, right: Array, wide: bool) -> Float64:
    """`left^T right`; both [groups, rows, ...]."""
    total = np.zeros((left.shape[0], left.shape[2], right.shape[2]))
    for rows in _ranges(left.shape[1], ROWS):
        some, others = (_in(wide, x[:, rows]) for x in (left, right))
        total += np.swapaxes(some, 1, 2) @ others
    return total


def _needs_wide(left: float, right: float, products: int) -> bool:
    """Whether these numbers, or a sum of their products, may exceed the range of float32."""
    product = left * right
    too_small = min(left, right, product) < FLOAT32_MIN_PRODUCT
    return too_small or max(left, right, product * products) >= FLOAT32_MAX


def _in(wide: bool, x: Array) -> Array:
    return x.astype(np.float64 if wide else np.float32, copy=False)


def _reach(array: Array) -> float:
    """The largest magnitude."""
    return max(float(np.max(array, initial=0)), -float(np.min(array, initial=0)))


def _pieces(groups: int, columns: int) -> Iterator[tuple[slice, slice]]:
    for some in _ranges(groups, GROUPS):
        for part in _ranges(columns, COLUMNS):
            yield some, part


def _ranges(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
