"""Slices, and ops that split a tensor, which are slices too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType, MappingProxyType

import numpy as np

from qgraph.frontends.tf.builder import Importer, Result, TfSite
from qgraph.frontends.tf.node import TFNode

FULL = (None, None, 1)
MAX_PIECES = 1 << 16  # pieces of one tensor; a file with more is damaged
MASKS = ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask", "begin_mask", "end_mask")
Part = tuple[int | None, int | None, int]


Entry = int | slice | EllipsisType | None


@dataclass(frozen=True)
class SliceSpec:
    """A strided slice with its masks, one entry per position that the caller wrote.

    An entry is a slice, an integer (the axis is dropped), None (a new axis) or Ellipsis.
    """

    entries: tuple[Entry, ...]

    def per_axis(self, rank: int) -> tuple[list[Part], list[int], list[int]]:
        """One slice per axis, the axes to drop after it, the axes to insert after that."""
        used = sum(e is not None and e is not Ellipsis for e in self.entries)
        entries = self.entries if Ellipsis in self.entries else (*self.entries, Ellipsis)
        parts: list[Part] = []
        dropped: list[int] = []
        inserted: list[int] = []
        out = 0
        for entry in entries:
            if entry is None:
                inserted.append(out)
                out += 1
            elif entry is Ellipsis:
                parts += [FULL] * (rank - used)
                out += rank - used
            elif isinstance(entry, slice):
                parts.append((entry.start, entry.stop, entry.step))
                out += 1
            else:
                dropped.append(len(parts))
                parts.append((entry, entry + 1 if entry != -1 else None, 1))
        return parts, dropped, inserted


def strided_spec(
    node: TFNode, begin: Sequence[int], end: Sequence[int], strides: Sequence[int]
) -> SliceSpec:
    """The slice of a StridedSlice node, its five bit masks applied."""

    masks = {name: node.integer(name) for name in MASKS}

    def bit(mask: str, i: int) -> bool:
        return bool(masks[mask] >> i & 1)

    entries: list[Entry] = []
    for i, (b, e, s) in enumerate(zip(begin, end, strides, strict=True)):
        if bit("ellipsis_mask", i):
            entries.append(Ellipsis)
        elif bit("new_axis_mask", i):
            entries.append(None)
        elif bit("shrink_axis_mask", i):
            entries.append(b)
        else:
            start = None if bit("begin_mask", i) or (b == 0 and s == 1) else b
            entries.append(slice(start, None if bit("end_mask", i) else e, s))
    return SliceSpec(tuple(entries))


def _known_where_used(site: TfSite, i: int, mask: str) -> tuple[int, ...] | None:
    """Input `i` as integers; elements that a mask ignores may be unknown."""
    partial = site.partial(i)
    if partial is None:
        return None
    ignored = site.node.integer(mask)
    if any(m and not ignored >> at & 1 for at, m in enumerate(np.ravel(partial.missing))):
        return None
    return tuple(int(v) for v in np.ravel(partial.values))


def _strided_slice(site: TfSite) -> Result:
    begin = _known_where_used(site, 1, "begin_mask")
    end = _known_where_used(site, 2, "end_mask")
    strides, rank = site.integers(3), site.type().rank
    if begin is None or end is None or strides is None or rank is None:
        return None
    parts, dropped, inserted = strided_spec(site.node, begin, end, strides).per_axis(rank)
    if len(parts) != rank:
        return None
    steps: list[tuple[str, dict[str, object]]] = []
    if any(p != FULL for p in parts):
        steps.append(("slice", slice_attrs(parts)))
    if dropped:
        steps.append(("squeeze", {"axes": tuple(dropped)}))
    steps += [("expand_dims", {"axis": axis}) for axis in inserted]
    return _chain(site, steps or [("identity", {})])


def slice_attrs(parts: Sequence[Part]) -> dict[str, object]:
    begin, end, strides = zip(*parts, strict=True)
    return {"begin": begin, "end": end, "strides": strides}


def _chain(site: TfSite, steps: Sequence[tuple[str, dict[str, object]]]) -> str:
    """The steps one after the other; the last one has the node's name."""
    value = site.inputs[0]
    for op, attrs in steps[:-1]:
        value = site.helper(op, op, value, **attrs)
    op, attrs = steps[-1]
    return site.emit(op, value, **attrs)


def _slice(site: TfSite) -> Result:
    begin, size, shape = site.integers(1), site.integers(2), site.shape()
    if begin is None or size is None or shape is None:
        return None
    parts: list[Part] = [
        (b or None, None if s == -1 or (d is not None and b + s == d) else b + s, 1)
        for b, s, d in zip(begin, size, shape, strict=True)
    ]
    return site.emit("slice", site.inputs[0], **slice_attrs(parts))


def _pieces(
    site: TfSite, i: int, axis: int, bounds: Sequence[tuple[int, int]], drop: bool
) -> Result:
    """One slice of input `i` along `axis` for each pair of bounds, without the axis if `drop`."""
    rank = site.type(i).rank or 1
    values: list[str] = []
    for k, (low, high) in enumerate(bounds):
        attrs = slice_attrs([(low, high, 1) if a == axis else FULL for a in range(rank)])
        if drop:
            attrs_of_last: dict[str, object] = {"axes": (axis,)}
            value = site.helper(f"slice{k}", "slice", site.inputs[i], **attrs)
            op = "squeeze"
        else:
            attrs_of_last, value, op = attrs, site.inputs[i], "slice"
        made = (
            site.helper(str(k), op, value, **attrs_of_last)
            if k
            else site.emit(op, value, **attrs_of_last)
        )
        values.append(made)
    return tuple(values)


def _split(site: TfSite) -> Result:
    axis, shape, count = site.integers(0), site.shape(1), site.node.integer("num_split")
    if axis is None or not shape:
        return None
    at = axis[0] % len(shape)
    size = shape[at]
    if size is None or not 0 < count <= MAX_PIECES or size % count:
        return None
    width = size // count
    return _pieces(site, 1, at, [(k * width, (k + 1) * width) for k in range(count)], drop=False)


def _split_v(site: TfSite) -> Result:
    sizes, axis, shape = site.integers(1), site.integers(2), site.shape()
    if sizes is None or axis is None or not shape:
        return None
    at = axis[0] % len(shape)
    whole = shape[at]
    if -1 in sizes:
        if whole is None:
            return None
        free = whole - sum(s for s in sizes if s != -1)
        sizes = tuple(free if s == -1 else s for s in sizes)
    ends = np.cumsum(sizes).tolist()
    return _pieces(site, 0, at, list(zip([0, *ends[:-1]], ends, strict=True)), drop=False)


def _unpack(site: TfSite) -> Result:
    shape, count = site.shape(), site.node.integer("num")
    if not shape or not 0 < count <= MAX_PIECES:
        return None
    axis = site.node.integer("axis") % len(shape)
    if shape[axis] not in (None, count):
        return None
    return _pieces(site, 0, axis, [(k, k + 1) for k in range(count)], drop=True)


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "StridedSlice": _strided_slice,
        "Slice": _slice,
        "Split": _split,
        "SplitV": _split_v,
        "Unpack": _unpack,
    }
)
