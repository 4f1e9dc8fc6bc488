"""The axis of samples in a value of a policy's graph, and the shape of one sample of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from qgraph.ir.types import Shape


@dataclass(frozen=True)
class SampleAxis:
    """The axis of a value along which samples lie, alone or among rows of each sample.

    axis: its place. before: rows of each sample outside of the samples, as after a reshape of [t,
    samples, k] to [t * samples, k]. after: rows of each sample inside, as in [samples * t, k].
    """

    axis: int = 0
    before: int = 1
    after: int = 1

    @property
    def rows(self) -> int:
        """Rows of the axis for each sample."""
        return self.before * self.after

    def sample(self, shape: Shape) -> Shape:
        """The shape of one sample of a value of `shape`; without the axis if it has one row."""
        rows = (self.rows,) if self.rows > 1 else ()
        return (*shape[: self.axis], *rows, *shape[self.axis + 1 :])

    def place(self, axis: int) -> int | None:
        """An axis of the value as an axis of a sample; None for the axis of samples."""
        if axis == self.axis:
            return None
        return axis - (1 if axis > self.axis and self.rows == 1 else 0)

    def order(self, perm: tuple[int, ...]) -> tuple[SampleAxis, tuple[int, ...]]:
        """The axis of samples after a transposition, and the order of the axes of one sample."""
        after = SampleAxis(perm.index(self.axis), self.before, self.after)
        if self.rows > 1:
            return after, perm
        places = [self.place(axis) for axis in perm]
        return after, tuple(place for place in places if place is not None)

    def reshaped(self, before: Shape, after: Shape) -> SampleAxis | None:
        """The axis of samples of the same numbers in another shape.

        None if a row would have numbers of several samples, or if a size is unknown.
        """
        inner = [*before[: self.axis], *before[self.axis + 1 :]]
        if None in inner:
            return self if before == after else None
        outside = _count(before[: self.axis]) * self.before
        inside = self.after * _count(before[self.axis + 1 :])
        found = []
        for axis in _candidates(before[self.axis], after):
            first, last = after[:axis], after[axis + 1 :]
            if None in (*first, *last) or not _count(first) or not _count(last):
                continue
            if outside % _count(first) == 0 and inside % _count(last) == 0:
                found.append(SampleAxis(axis, outside // _count(first), inside // _count(last)))
        # For a fixed number of samples several axes fit: best one that is not the last, with no
        # rows outside of the samples.
        last_axis = len(after) - 1
        return min(
            found, key=lambda s: (s.axis == last_axis and s.axis > 0, s.before > 1, s.axis),
            default=None,
        )  # fmt: skip


def _candidates(size: int | None, shape: Shape) -> list[int]:
    """Axes that may hold samples: the one of unknown size, or any for a fixed number of samples."""
    unknown = [axis for axis, known in enumerate(shape) if known is None]
    return unknown if size is None else [*range(len(shape))]


def _count(sizes: Shape) -> int:
    return math.prod(size or 0 for size in sizes)
