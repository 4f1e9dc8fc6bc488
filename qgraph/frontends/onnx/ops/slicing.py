"""Slices, and ops that split a tensor, which are slices too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.embeddings import rows_of_table
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.tf.ops.slicing import FULL, Part, slice_attrs
from qgraph.ir.types import Array

MAX_INDICES = 1 << 16
MAX_SIZE = 1 << 31  # the largest integer of 32 bits and above: exporters write it for the end
MAX_ELEMENTS = 1 << 40  # no tensor in memory has more


def along(rank: int, axis: int, part: Part) -> dict[str, object]:
    return slice_attrs([part if a == axis else FULL for a in range(rank)])


def bounds(begin: int, end: int, step: int, size: int | None, huge: int = MAX_SIZE) -> Part:
    """One axis of a slice, None for an end that is the end of the axis.

    huge: a size that no axis reaches.
    """
    if step == 0:
        raise GraphError("a slice whose step is 0")
    if step > 0:
        first = begin in (0, -huge) or begin <= -huge or (size is not None and begin <= -size)
        last = end >= huge - 1 or (size is not None and end >= size)
        return (None if first else begin, None if last else end, step)
    first = begin >= huge - 1 or (size is not None and begin >= size - 1)
    last = end <= -huge or (size is not None and end < -size)
    return (None if first else begin, None if last else end, step)


def _slice(site: OnnxSite) -> Result:
    starts, ends = site.setting("starts", 1), site.setting("ends", 2)
    axes, steps = site.setting("axes", 3), site.setting("steps", 4)
    shape = site.known_shape()
    if starts is None or ends is None:
        return None
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    parts: list[Part] = [FULL] * len(shape)
    for begin, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = site.axis(axis, len(shape))
        others = math.prod(size or 1 for a, size in enumerate(shape) if a != at)
        huge = min(MAX_SIZE, MAX_ELEMENTS // others + 2)
        parts[at] = bounds(begin, end, step, shape[at], huge)
    if all(p == FULL for p in parts):
        return site.emit("identity", site.inputs[0])
    return site.emit("slice", site.inputs[0], **slice_attrs(parts))


def _sizes(site: OnnxSite, whole: int | None) -> tuple[int, ...]:
    """Sizes of the pieces: as given, or equal ones, of which the last may be smaller."""
    given, count = site.setting("split", 1), len(site.node.outputs)
    if given is not None:
        return given
    count = site.node.integer("num_outputs", count)
    if whole is None or count < 1:
        raise Inexpressible
    size = -(-whole // count)
    return (*(size,) * (count - 1), whole - size * (count - 1))


def _split(site: OnnxSite) -> Result:
    shape = site.known_shape()
    axis = site.axis(site.node.integer("axis"), len(shape))
    sizes = _sizes(site, shape[axis])
    if len(sizes) != len(site.node.outputs) or min(sizes) < 0:
        raise GraphError(f"pieces of {sizes} for {len(site.node.outputs)} outputs", node=site.name)
    if shape[axis] is not None and sum(sizes) != shape[axis]:
        raise GraphError(f"pieces of {sizes} do not make up {shape[axis]}", node=site.name)
    ends = [0, *np.cumsum(sizes).tolist()]
    return tuple(
        site.builder.make(
            site.named(i), "slice", (site.inputs[0],), along(len(shape), axis, (low, high, 1))
        )
        for i, (low, high) in enumerate(pairwise(ends))
    )


def _gather(site: OnnxSite) -> Result:
    indices, shape = site.constant(1), site.known_shape()
    axis = site.axis(site.node.integer("axis"), len(shape))
    if indices is None:
        return rows_of_table(site, axis)
    array = site.constant(0)
    rest = 0 if array is None else array.size // max(array.shape[axis], 1)
    if array is not None and site.builder.allows(rest * indices.size + indices.size):
        return site.const(np.take(array, indices.astype(np.int64), axis))
    return _picked(site, axis, shape[axis], indices.astype(np.int64))


def _picked(site: OnnxSite, axis: int, size: int | None, indices: Array) -> Result:
    """A single index drops the axis; several are one slice, or picked one by one."""
    rank, x = site.rank(), site.inputs[0]
    if indices.size > MAX_INDICES:
        return None
    chosen = [int(i) for i in np.ravel(indices)]
    if size is not None and any(not -size <= i < size for i in chosen):
        raise GraphError(f"an index outside of {size}", node=site.name)
    if indices.ndim == 0:
        one = site.helper("slice", "slice", x, **along(rank, axis, _single(chosen[0])))
        return site.emit("squeeze", one, axes=(axis,))
    if indices.ndim != 1 and size is not None:
        known = tuple(i % size for i in chosen)
        picked = site.helper("picked", "take", x, axis=axis, indices=known)
        target = (*site.known_shape()[:axis], *indices.shape, *site.known_shape()[axis + 1 :])
        if target.count(None) > 1:
            return None
        return site.emit("reshape", picked, shape=tuple(-1 if d is None else d for d in target))
    if indices.ndim != 1 or not chosen:
        return None
    step = chosen[1] - chosen[0] if len(chosen) > 1 else 1
    if min(chosen) >= 0 and step > 0 and all(b - a == step for a, b in pairwise(chosen)):
        part = bounds(chosen[0], chosen[-1] + 1, step, size)
        return site.emit("slice", x, **along(rank, axis, part))
    if size is None and min(chosen) < 0:
        return None
    return site.emit("take", x, axis=axis, indices=tuple(i % size if size else i for i in chosen))


def _single(index: int) -> Part:
    return (index, None if index == -1 else index + 1, 1)


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {"Slice": _slice, "Split": _split, "Gather": _gather}
)
