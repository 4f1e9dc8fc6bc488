"""Ops that repeat a tensor along axes.

Along an axis of known size, elements are picked more than once. To match an unknown size of another
tensor, such as a batch, a tensor is broadcast by a select between itself and itself with a
condition of that size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import LoadError
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import MAX_TOTAL, Importer, OnnxSite, Result
from qgraph.frontends.onnx.ops.slicing import MAX_INDICES
from qgraph.frontends.partial import Partial

MAX_COPIES = 64
AXIS_OF = re.compile(r"(.*)\[(\d+)\]", re.DOTALL)
Dim = int | str  # a size, or the name of an unknown one


def _dims(wanted: Partial | None) -> tuple[Dim, ...]:
    if wanted is None or wanted.values.ndim != 1:
        raise Inexpressible
    return tuple(
        int(v) if u is None else str(u) for v, u in zip(wanted.values, wanted.unknown, strict=True)
    )


def _expand(site: OnnxSite) -> Result:
    """Expand to a shape that the input broadcasts with; 1 keeps a dimension."""
    have, wanted = site.dims(), _dims(site.partial(1))
    if have is None:
        raise Inexpressible
    own = _dims(have)
    rank = max(len(own), len(wanted))
    own, wanted = (1,) * (rank - len(own)) + own, (1,) * (rank - len(wanted)) + wanted
    return _broadcast(
        site, own, tuple(o if w == 1 else w for o, w in zip(own, wanted, strict=True))
    )


def _tile(site: OnnxSite) -> Result:
    have, times = site.dims(), _dims(site.partial(1))
    if have is None or len(times) != have.values.size:
        raise Inexpressible
    own = _dims(have)
    if all(isinstance(t, int) for t in times):
        return _repeated(site, site.inputs[0], [int(t) for t in times], last=True)
    if any(t != 1 and o != 1 for o, t in zip(own, times, strict=True)):
        raise Inexpressible
    return _broadcast(site, own, tuple(t if o == 1 else o for o, t in zip(own, times, strict=True)))


def _constant_of_shape(site: OnnxSite) -> Result:
    """All elements are one number, so a view takes no memory."""
    fill, wanted = site.node.attrs.get("value"), _dims(site.partial(0))
    value = np.zeros(1, np.float32) if fill is None else site.builder.decoded(fill, site.name)
    known = tuple(d if isinstance(d, int) else 1 for d in wanted)
    if value.size != 1 or any(d < 0 for d in known):
        raise LoadError(f"a constant of shape {known}, filled with {value.size}", node=site.name)
    if math.prod(known) > MAX_TOTAL:
        raise LoadError(f"a constant of {math.prod(known):,} elements", node=site.name)
    filled = np.broadcast_to(value.reshape(()), known)
    if known == wanted:
        return site.const(filled)
    opened = tuple(None if isinstance(d, int) else d for d in wanted)
    return _spread(site, site.const(filled, "filled"), opened)


def _broadcast(site: OnnxSite, own: tuple[Dim, ...], wanted: tuple[Dim, ...]) -> Result:
    """Input 0, of dimensions `own`, to those `wanted`, as many."""
    if any(o not in (1, w) for o, w in zip(own, wanted, strict=True)):
        raise Inexpressible
    times = [w if isinstance(w, int) and o != w else 1 for o, w in zip(own, wanted, strict=True)]
    opened = tuple(
        w if isinstance(w, str) and o != w else None for o, w in zip(own, wanted, strict=True)
    )
    spread = any(o is not None for o in opened)
    x, missing = site.inputs[0], len(own) - len(site.known_shape())
    array = site.constant(0)
    if array is not None and site.builder.allows(array.size * math.prod(times)):
        whole = np.tile(array, times)
        return _spread(site, site.const(whole, "whole"), opened) if spread else site.const(whole)
    if missing and not spread and math.prod(times) == 1:
        raise Inexpressible
    for i in range(missing):
        x = site.helper(f"axis_{i}", "expand_dims", x, axis=0)
    x = _repeated(site, x, times, last=not spread)
    return _spread(site, x, opened) if spread else x


def _repeated(site: OnnxSite, x: str, times: list[int], *, last: bool) -> str:
    """`x` repeated `times` along each axis: picked by index, or joined copies of an open size.

    `last`: it becomes the node's result.
    """
    array = site.builder.constant(x)
    if array is not None and site.builder.allows(array.size * math.prod(times)):
        return site.const(np.tile(array, times), None if last else "whole")
    shape = site.builder.graph.types[x].shape or (None,) * len(times)
    if min(times, default=1) < 1:
        raise Inexpressible
    axes = [axis for axis, count in enumerate(times) if count > 1]
    for axis in axes:
        count, size = times[axis], shape[axis]
        if size is not None and size * count <= MAX_INDICES:
            picks = tuple(np.tile(np.arange(size), count).tolist())
            x = site.helper(f"axis{axis}", "take", x, axis=axis, indices=picks)
        elif count <= MAX_COPIES:
            x = site.helper(f"axis{axis}", "concat", *[x] * count, axis=axis)
        else:
            raise Inexpressible
    return site.emit("identity", x) if last else x


def _spread(site: OnnxSite, x: str, opened: tuple[str | None, ...]) -> str:
    """`x` broadcast from 1 to the axes of unknown sizes."""
    flags = ""
    for axis, name in enumerate(opened):
        if name is not None:
            flag = _flags(site, name, axis, len(opened))
            flags = site.helper(f"all{axis}", "logical_or", flags, flag) if flags else flag
    return site.emit("select", flags, x, x)


def _flags(site: OnnxSite, name: str, axis: int, rank: int) -> str:
    """A condition of `rank` with the unknown size `name` along `axis`, and 1 elsewhere."""
    types = site.builder.graph.types
    found = AXIS_OF.fullmatch(name)
    value, at = (name, 0) if name in types or found is None else (found[1], int(found[2]))
    shape = types[value].shape if value in types else None
    if not shape or at >= len(shape) or types[value].dtype == "string":
        raise Inexpressible
    ends = tuple(None if a == at else 1 for a in range(len(shape)))
    attrs = {"begin": (None,) * len(shape), "end": ends, "strides": (1,) * len(shape)}
    first = site.helper(f"like{axis}", "slice", value, **attrs)
    target = tuple(-1 if a == axis else 1 for a in range(rank))
    column = site.helper(f"column{axis}", "reshape", first, shape=target)
    return site.helper(f"flags{axis}", "equal", column, column)


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {"Expand": _expand, "Tile": _tile, "ConstantOfShape": _constant_of_shape}
)
