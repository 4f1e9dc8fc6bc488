"""Lists of the steps of a loop, which a file holds as one tensor with a row for each step.

Each step writes its row by slices before and after it, and a concat of them and the row. What the
rows are is followed through slices and concats, so that one concat of all rows is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from qgraph.frontends.tf.builder import Result, TfSite
from qgraph.frontends.tf.ops import IMPORTERS

Rows: TypeAlias = tuple[tuple[str, int], ...]  # values along the first axis, and their sizes


class KnowsRows(Protocol):
    """A builder that knows what some tensors consist of."""

    rows: dict[str, Rows]


def sliced_rows(site: TfSite, known: KnowsRows) -> Result:
    """A slice; one of whole rows is known as these."""
    made = IMPORTERS["Slice"](site)
    begin, size, shape = site.integers(1), site.integers(2), site.shape()
    if not isinstance(made, str) or begin is None or size is None or not shape:
        return made
    ends = [b + s if s >= 0 else n for b, s, n in zip(begin, size, shape, strict=True)]
    whole = all(b == 0 and e == n for b, e, n in zip(begin[1:], ends[1:], shape[1:], strict=True))
    first, rows = shape[0], known.rows.get(site.inputs[0])
    if whole and first is not None and ends[0] is not None:
        parts = ((site.inputs[0], first),) if rows is None else rows
        known.rows[made] = tuple(_between(site, parts, begin[0], ends[0]))
    return made


def _between(site: TfSite, rows: Rows, begin: int, end: int) -> Iterator[tuple[str, int]]:
    """The rows in a range; a part that the range cuts is cut too."""
    start = 0
    for value, count in rows:
        low, high = max(begin - start, 0), min(end - start, count)
        start += count
        if low >= high:
            continue
        if high - low == count:
            yield value, count
            continue
        array = site.builder.constant(value)
        if array is not None:
            yield site.const(array[low:high], "rows"), high - low
            continue
        rank = len(site.builder.graph.types[value].shape or ())
        full = (None,) * (rank - 1)
        attrs = {"begin": (low, *full), "end": (high, *full), "strides": (1,) * rank}
        yield site.helper("rows", "slice", value, **attrs), high - low


def joined_rows(site: TfSite, known: KnowsRows) -> Result:
    """A concat; one along the first axis takes the rows that its inputs are known as."""
    axis, several = site.integers(len(site.inputs) - 1), site.inputs[:-1]
    sizes = [_size(site, value) for value in several]
    rank = len(site.shape() or ())
    if not axis or not rank or axis[0] % rank or None in sizes:
        return IMPORTERS["ConcatV2"](site)
    parts = tuple(_parts(known.rows, several, [size or 0 for size in sizes]))
    values = [value for value, _ in parts]
    if not values:
        return IMPORTERS["ConcatV2"](site)
    if len(values) == 1:
        made = site.emit("identity", values[0])
    else:
        made = site.emit("concat", *values, axis=0)
    known.rows[made] = parts
    return made


def _size(site: TfSite, value: str) -> int | None:
    shape = site.builder.graph.types[value].shape
    return shape[0] if shape else None


def _parts(
    rows: Mapping[str, Rows], values: Sequence[str], sizes: Sequence[int]
) -> Iterator[tuple[str, int]]:
    for value, size in zip(values, sizes, strict=True):
        if value in rows:
            yield from rows[value]
        elif size:
            yield value, size
