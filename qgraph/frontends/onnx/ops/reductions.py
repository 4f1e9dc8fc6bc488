"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.onnx.ops.slicing import along


def _axes(site: OnnxSite) -> tuple[tuple[int, ...], bool] | None:
    """The axes, from the front, and whether they stay; None if nothing is reduced."""
    rank, given = site.rank(), site.setting("axes", 1)
    keepdims = site.node.flag("keepdims", True)
    if site.node.flag("noop_with_empty_axes") and not given:
        return None
    axes = tuple(sorted({site.axis(a, rank) for a in given or range(rank)}))
    return axes, keepdims


def _reduction(op: str, before: str | None = None, after: str | None = None) -> Importer:
    """Reduce by `op`, with something done to each element before, or to each result after."""

    def importer(site: OnnxSite) -> Result:
        x = site.inputs[0]
        if not site.type().is_float and (op, before, after) not in WHOLE:
            raise Inexpressible
        if site.type().dtype == "string":
            raise Inexpressible
        found = _axes(site)
        if before:
            x = site.helper(before, before, x)
        if found is None:
            return site.emit(after, x) if after else site.emit("identity", x)
        attrs = {"axes": found[0], "keepdims": found[1]}
        if not after:
            return site.emit(op, x, **attrs)
        return site.emit(after, site.helper(op, op, x, **attrs))

    return importer


def _log_sum_exp(site: OnnxSite) -> Result:
    """log(sum(exp(x - largest))) + largest, which is finite wherever the result is."""
    found, x = _axes(site), site.inputs[0]
    if not site.type().is_float:
        raise Inexpressible
    if found is None:
        return site.emit("identity", x)
    axes, keepdims = found
    kept = {"axes": axes, "keepdims": True}
    largest = site.helper("largest", "reduce_max", x, **kept)
    powers = site.helper("powers", "exp", site.helper("less", "sub", x, largest))
    log = site.helper("log", "log", site.helper("sum", "sum", powers, **kept))
    made = site.helper("total", "add", log, largest)
    return site.emit("identity", made) if keepdims else site.emit("squeeze", made, axes=axes)


# Reductions that keep the type of integers.
WHOLE = (("reduce_max", None, None),)


def _place(*, smallest: bool) -> Importer:
    """The position of the largest or of the smallest element along an axis, the first or the last
    of equal ones.
    """

    def importer(site: OnnxSite) -> Result:
        kind, x, rank = site.type(), site.inputs[0], site.rank()
        last = site.node.flag("select_last_index")
        if kind.dtype in ("string", "bool") or (smallest and not kind.is_float):
            return None
        axis = site.axis(site.node.integer("axis"), rank)
        size = site.known_shape()[axis]
        if smallest:
            x = site.helper("negated", "neg", x)
        if last:
            if size is None:
                raise Inexpressible
            x = site.helper("reversed", "slice", x, **along(rank, axis, (None, None, -1)))
        attrs = {"axis": axis, "dtype": "int64"}
        if not last and not site.node.flag("keepdims", True):
            return site.emit("argmax", x, **attrs)
        found = site.helper("place", "argmax", x, **attrs)
        if last:
            end = site.const(np.int64((size or 1) - 1), "end")
            found = site.helper("from_start", "sub", end, found)
        if not site.node.flag("keepdims", True):
            return site.emit("identity", found)
        return site.emit("expand_dims", found, axis=axis)

    return importer


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "ReduceMean": _reduction("mean"),
        "ReduceSum": _reduction("sum"),
        "ReduceMax": _reduction("reduce_max"),
        "ReduceMin": _reduction("reduce_max", "neg", "neg"),
        "ReduceL1": _reduction("sum", "abs"),
        "ReduceL2": _reduction("sum", "square", "sqrt"),
        "ReduceSumSquare": _reduction("sum", "square"),
        "ReduceLogSum": _reduction("sum", None, "log"),
        "ReduceLogSumExp": _log_sum_exp,
        "ArgMax": _place(smallest=False),
        "ArgMin": _place(smallest=True),
    }
)
