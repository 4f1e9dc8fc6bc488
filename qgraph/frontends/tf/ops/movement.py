"""Ops that move values: joining, padding, reshaping, turning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.partial import Partial
from qgraph.frontends.site import AnySite
from qgraph.frontends.tf.builder import Importer, Result, TfSite

MAX_FILL = 1 << 24


def _concat(site: TfSite, parts: Sequence[str], axis: tuple[int, ...] | None) -> Result:
    if axis is None or not parts:
        return None
    if len(parts) == 1:
        return site.emit("identity", parts[0])
    rank = _known_rank(site, parts)
    return site.emit("concat", *parts, axis=axis[0] if rank is None else axis[0] % rank)


def _known_rank(site: TfSite, values: Iterable[str]) -> int | None:
    """The common rank of inputs, if it is known for one of them."""
    ranks = (site.builder.graph.types[value].rank for value in values)
    return next((rank for rank in ranks if rank is not None), None)


def _concat_v2(site: TfSite) -> Result:
    return _concat(site, site.inputs[:-1], site.integers(len(site.inputs) - 1))


def _concat_v1(site: TfSite) -> Result:
    return _concat(site, site.inputs[1:], site.integers(0))


def _pack(site: TfSite) -> Result:
    axis = site.node.integer("axis")
    rank = _known_rank(site, site.inputs)
    if axis < 0 and rank is None:
        return None
    axis = axis if rank is None else axis % (rank + 1)
    if len(site.inputs) == 1:
        return site.emit("expand_dims", site.inputs[0], axis=axis)
    parts = [
        site.helper(f"part{i}", "expand_dims", v, axis=axis) for i, v in enumerate(site.inputs)
    ]
    return site.emit("concat", *parts, axis=axis)


def _pad(site: TfSite) -> Result:
    paddings = site.small_constant(1)
    if paddings is None:
        return None
    pairs = tuple((int(a), int(b)) for a, b in paddings)
    if site.node.op == "MirrorPad":
        return site.emit("pad", site.inputs[0], paddings=pairs, mode=site.node.text("mode").lower())
    fill = 0 if site.node.op == "Pad" else site.constant(2)
    if fill is None:
        return None
    return site.emit(
        "pad", site.inputs[0], paddings=pairs, mode="constant", value=np.asarray(fill).item()
    )


def _reshape(site: TfSite) -> Result:
    target = site.partial(1)
    if target is None or target.values.ndim != 1:
        return None
    shape = reshape_target(site, target)
    return None if shape is None else site.emit("reshape", site.inputs[0], shape=shape)


def reshape_target(site: AnySite, target: Partial) -> tuple[int, ...] | None:
    """The target with at most one -1: an unknown batch becomes it. None if that is impossible."""
    dims = [None if u else int(v) for v, u in zip(target.values, target.missing, strict=True)]
    if dims.count(None) + dims.count(-1) <= 1:
        return tuple(-1 if d is None else d for d in dims)
    shape = site.shape(0)
    at = dims.index(None) if dims.count(None) == 1 else -1
    if at < 0 or dims.count(-1) != 1 or not shape or shape[0] is not None or None in shape[1:]:
        return None
    if target.unknown[at] != site.builder.batch.origin(site.inputs[0]):
        return None
    rest = math.prod(d or 0 for d in shape[1:])
    given = math.prod(d for d in dims if d is not None and d != -1)
    if given == 0 or rest % given:
        raise GraphError(f"{site.type(0)} cannot be reshaped to {dims}", node=site.name)
    return tuple(-1 if d is None else rest // given if d == -1 else d for d in dims)


def _squeeze(site: TfSite) -> Result:
    shape, axes = site.shape(), site.node.integers("squeeze_dims")
    if shape is None:
        return None
    if not axes:
        if None in shape:
            return None
        axes = tuple(i for i, d in enumerate(shape) if d == 1)
    rank = len(shape)
    return site.emit("squeeze", site.inputs[0], axes=tuple(sorted(a % rank for a in axes)))


def _expand_dims(site: TfSite) -> Result:
    axis, rank = site.integers(1), site.type().rank
    if axis is None:
        return None
    at = axis[0] % (rank + 1) if rank is not None else axis[0]
    return site.emit("expand_dims", site.inputs[0], axis=at)


def _transpose(site: TfSite) -> Result:
    perm = site.integers(1)
    if perm is None:
        return None
    return site.emit("transpose", site.inputs[0], perm=tuple(p % len(perm) for p in perm))


def _fill(site: TfSite) -> Result:
    dims, value = site.integers(0), site.constant(1)
    if dims is None or value is None or math.prod(dims) > MAX_FILL:
        return None
    return site.const(np.broadcast_to(np.reshape(value, ()), dims))


def _filled_like(number: int) -> Importer:
    def importer(site: TfSite) -> Result:
        shape, dtype = site.shape(), site.type().dtype
        dims = None if shape is None or None in shape else tuple(d or 0 for d in shape)
        if dtype == "string" or (dims is not None and math.prod(dims) > MAX_FILL):
            return None
        if dims is not None:
            return site.const(np.broadcast_to(np.asarray(number, dtype), dims))
        if not site.type().is_float:
            return None
        limit = site.const(np.asarray(number, dtype), "limit")
        above = site.helper("above", "maximum", site.inputs[0], limit)
        return site.emit("minimum", above, limit)

    return importer


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "ConcatV2": _concat_v2,
        "Concat": _concat_v1,
        "Pack": _pack,
        "Pad": _pad,
        "PadV2": _pad,
        "MirrorPad": _pad,
        "Reshape": _reshape,
        "Squeeze": _squeeze,
        "ExpandDims": _expand_dims,
        "Transpose": _transpose,
        "Fill": _fill,
        "ZerosLike": _filled_like(0),
        "OnesLike": _filled_like(1),
    }
)
