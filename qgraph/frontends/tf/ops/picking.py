"""Ops that pick elements by indices: gather, roll, reverse, tile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.embeddings import INDICES, one_hot, rows_of_table, selected_rows
from qgraph.frontends.tf.builder import Importer, Result, TfSite
from qgraph.frontends.tf.node import NOT_NUMPY
from qgraph.frontends.tf.ops.slicing import FULL, slice_attrs
from qgraph.ir.types import Codes

MAX_INDICES = 1 << 16


def _gather(site: TfSite) -> Result:
    """Constant indices into any axis, the first by default, any indices into a table, or an index
    for each sample.
    """
    indices, shape = site.constant(1), site.shape()
    axes = site.integers(2) if len(site.inputs) > 2 else (0,)
    if shape is None or axes is None:
        return None
    if batch := site.node.integer("batch_dims"):
        return _gather_of_samples(site, axes[0], batch)
    if not shape or site.type().dtype == "string":
        return None
    if indices is None:
        return rows_of_table(site, axes[0] % len(shape))
    site.without_effect("validate_indices")
    axis = axes[0] % len(shape)
    size, found = shape[axis], indices.astype(np.int64).reshape(-1)
    if size is None or found.size > MAX_INDICES:
        return None
    if found.size and not (found.min() >= 0 and found.max() < size):
        raise GraphError(f"an index outside of {size}", node=site.name)
    if indices.ndim == 1:
        return _taken(site, {axis: found})
    target = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
    if target.count(None) > 1:
        return None
    picked = site.helper("picked", "take", site.inputs[0], axis=axis, indices=_tuple(found))
    return site.emit("reshape", picked, shape=tuple(-1 if d is None else d for d in target))


def _gather_of_samples(site: TfSite, axis: int, batch: int) -> Result:
    shape, indices = site.shape() or (), site.type(1)
    if not shape or indices.rank is None or indices.dtype not in INDICES:
        return None
    batch %= indices.rank + 1
    if axis % len(shape) != batch:
        return None
    site.without_effect("validate_indices")
    return selected_rows(site, site.inputs[0], site.inputs[1], batch)


def _one_hot(site: TfSite) -> Result:
    size, rank, dtype = site.integers(1), site.type().rank, site.type().dtype
    if size is None or rank is None or dtype not in INDICES or site.type(2).dtype in NOT_NUMPY:
        return None
    axis = site.node.integer("axis", -1) % (rank + 1)
    return one_hot(site, site.inputs[0], size[0], axis, site.inputs[3], site.inputs[2])


def _reverse(site: TfSite) -> Result:
    axes, rank = site.integers(1), site.type().rank
    if axes is None or rank is None:
        return None
    turned = {axis % rank for axis in axes}
    parts = [(None, None, -1) if axis in turned else FULL for axis in range(rank)]
    return site.emit("slice", site.inputs[0], **slice_attrs(parts))


def _roll(site: TfSite) -> Result:
    """Roll along axes of known size."""
    shifts, axes, shape = site.integers(1), site.integers(2), site.shape()
    if shifts is None or axes is None or shape is None or len(shifts) != len(axes):
        return None
    picks: dict[int, Codes] = {}
    for shift, axis in zip(shifts, axes, strict=True):
        at = axis % len(shape)
        size = shape[at]
        if size is None or size > MAX_INDICES:
            return None
        picks[at] = np.roll(picks.get(at, np.arange(size)), shift)
    return _taken(site, picks)


def _tile(site: TfSite) -> Result:
    times, shape = site.integers(1), site.shape()
    if times is None or shape is None:
        return None
    picks: dict[int, Codes] = {}
    for axis, (count, size) in enumerate(zip(times, shape, strict=True)):
        if count != 1:
            if size is None or size * count > MAX_INDICES:
                return None
            picks[axis] = np.tile(np.arange(size), count)
    return _taken(site, picks)


def _broadcast_to(site: TfSite) -> Result:
    """Broadcast along axes of size 1 to known sizes."""
    wanted, have = site.partial(1), site.dims()
    if wanted is None or have is None or wanted.values.ndim != 1:
        return None
    missing = wanted.values.size - have.values.size
    if missing < 0:
        return None
    x, picks = site.inputs[0], dict[int, Codes]()
    for axis in range(wanted.values.size):
        size, unknown = int(wanted.values[axis]), wanted.unknown[axis]
        own = 1 if axis < missing else int(have.values[axis - missing])
        open_ = None if axis < missing else have.unknown[axis - missing]
        if open_ is not None or unknown is not None:
            if open_ != unknown:
                return None
        elif own == 1 and 1 < size <= MAX_INDICES:
            picks[axis] = np.zeros(size, np.int64)
        elif own != size:
            return None
    for at in range(missing):
        x = site.helper(f"axis{at}", "expand_dims", x, axis=0)
    return _taken(site, picks, x)


def _taken(site: TfSite, picks: Mapping[int, Codes], x: str = "") -> Result:
    """Pick elements along some axes."""
    x = x or site.inputs[0]
    shape = site.builder.graph.types[x].shape or ()
    sizes = [len(picks[a]) if a in picks else d or 1 for a, d in enumerate(shape)]
    if site.type().dtype == "string" or math.prod(sizes) > 1 << 28:
        return None
    if not picks:
        return site.emit("identity", x)
    *others, last = picks.items()
    for axis, indices in others:
        x = site.helper(f"along{axis}", "take", x, axis=axis, indices=_tuple(indices))
    return site.emit("take", x, axis=last[0], indices=_tuple(last[1]))


def _tuple(indices: Codes) -> tuple[int, ...]:
    return tuple(indices.tolist())


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "Gather": _gather,
        "GatherV2": _gather,
        "OneHot": _one_hot,
        "ReverseV2": _reverse,
        "Roll": _roll,
        "Tile": _tile,
        "BroadcastTo": _broadcast_to,
    }
)
