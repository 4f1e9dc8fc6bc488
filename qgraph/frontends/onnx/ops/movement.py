"""Ops that move values: joining, padding, reshaping, turning, repeating."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.partial import Partial
from qgraph.frontends.tf.ops.movement import reshape_target


def _concat(site: OnnxSite) -> Result:
    ranks = {t.rank for t in (site.type(i) for i in range(len(site.inputs)))}
    if len(ranks) != 1 or None in ranks:
        raise Inexpressible
    axis = site.axis(site.node.integer("axis", 1), site.rank())
    if len(site.inputs) == 1:
        return site.emit("identity", site.inputs[0])
    return site.emit("concat", *site.inputs, axis=axis)


def _pads(site: OnnxSite) -> list[tuple[int, int]]:
    """(before, after) of each axis; since opset 18 only some axes may be given."""
    rank, flat = site.rank(), site.setting("pads", 1)
    axes = site.integers(3) if site.has(3) else tuple(range(rank))
    if flat is None or axes is None or len(flat) != 2 * len(axes):
        raise Inexpressible
    pads = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        pads[site.axis(axis, rank)] = (flat[i], flat[i + len(axes)])
    return pads


def _pad(site: OnnxSite) -> Result:
    if site.type().dtype == "string":
        return None
    pads, attrs = _pads(site), _mode(site)
    if attrs["mode"] == "edge":  # of one element, it is its own mirror image
        if max(max(p) for p in pads) > 1:
            return None
        attrs = {"mode": "symmetric"}
    added = tuple((max(a, 0), max(b, 0)) for a, b in pads)
    cut = [(max(-a, 0), max(-b, 0)) for a, b in pads]
    if not any(map(any, cut)):
        return site.emit("pad", site.inputs[0], paddings=added, **attrs)
    if attrs["mode"] != "constant":
        return None
    whole = site.inputs[0]
    if any(map(any, added)):
        whole = site.helper("padded", "pad", whole, paddings=added, **attrs)
    begin, end = (tuple(c[k] or None for c in cut) for k in (0, 1))
    end = tuple(None if e is None else -e for e in end)
    return site.emit("slice", whole, begin=begin, end=end, strides=(1,) * len(cut))


def _mode(site: OnnxSite) -> dict[str, object]:
    mode = site.node.text("mode", "constant")
    if mode in ("reflect", "edge"):
        site.without_effect("value", 2)
        return {"mode": mode}
    if mode != "constant":
        raise Inexpressible
    if not site.has(2):
        return {"mode": mode, "value": site.node.real("value", 0.0) or 0}
    value = site.constant(2)
    if value is None:
        raise Inexpressible
    return {"mode": mode, "value": np.asarray(value).reshape(()).item() or 0}


def _reshape(site: OnnxSite) -> Result:
    target = site.partial(1)
    if "shape" in site.node.attrs:  # before opset 5, and in some exporters since
        target = Partial.known(np.asarray(site.node.integers("shape"), np.int64))
    if target is None or target.values.ndim != 1:
        return None
    if not site.node.flag("allowzero"):
        target = _zeros_filled(site, target)
    found = reshape_target(site, target)
    if found is None or min(found, default=0) < -1:
        return None
    return site.emit("reshape", site.inputs[0], shape=found)


def _zeros_filled(site: OnnxSite, target: Partial) -> Partial:
    """Replace each 0 by the dimension of the input at its position."""
    values, unknown = target.values.copy(), target.unknown.copy()
    for at in range(values.size):
        if values[at] or unknown[at] is not None:
            continue
        shape = site.known_shape()
        if at >= len(shape):
            raise GraphError(f"{site.type()} has no dimension {at} to copy", node=site.name)
        values[at] = shape[at] or 0
        if shape[at] is None:
            value = site.inputs[0]
            unknown[at] = site.builder.batch.origin(value) if at == 0 else f"{value}[{at}]"
    return Partial(values, unknown)


def _flatten(site: OnnxSite) -> Result:
    shape, at = site.known_shape(), site.node.integer("axis", 1)
    at = at if at == len(shape) else site.axis(at, len(shape))
    sides = (shape[:at], shape[at:])
    rows, columns = (None if None in s else math.prod(d or 0 for d in s) for s in sides)
    if rows is None and columns is None:
        return None
    target = (-1 if rows is None else rows, -1 if columns is None else columns)
    return site.emit("reshape", site.inputs[0], shape=target)


def _squeeze(site: OnnxSite) -> Result:
    shape, axes = site.known_shape(), site.setting("axes", 1)
    if axes is None:
        if None in shape:
            return None
        axes = tuple(i for i, d in enumerate(shape) if d == 1)
    axes = tuple(sorted({site.axis(a, len(shape)) for a in axes}))
    return site.emit("squeeze", site.inputs[0], axes=axes)


def _unsqueeze(site: OnnxSite) -> Result:
    axes = site.setting("axes", 1)
    if axes is None:
        return None
    rank = site.rank() + len(axes)
    places = sorted({site.axis(a, rank) for a in axes})
    if len(places) != len(axes):
        raise GraphError(f"axes {axes} name one axis twice", node=site.name)
    if not places:
        return site.emit("identity", site.inputs[0])
    value = site.inputs[0]
    for axis in places[:-1]:
        value = site.helper(f"axis{axis}", "expand_dims", value, axis=axis)
    return site.emit("expand_dims", value, axis=places[-1])


def _transpose(site: OnnxSite) -> Result:
    rank = site.rank()
    perm = site.node.integers("perm") or tuple(reversed(range(rank)))
    return site.emit("transpose", site.inputs[0], perm=tuple(site.axis(p, rank) for p in perm))


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "Concat": _concat,
        "Pad": _pad,
        "Reshape": _reshape,
        "Flatten": _flatten,
        "Squeeze": _squeeze,
        "Unsqueeze": _unsqueeze,
        "Transpose": _transpose,
    }
)
