"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result


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


# Reductions that keep the type of integers.
WHOLE = (("reduce_max", None, None),)


def _argmax(site: OnnxSite) -> Result:
    if site.node.flag("select_last_index") or site.type().dtype in ("string", "bool"):
        return None
    axis = site.axis(site.node.integer("axis"), site.rank())
    attrs = {"axis": axis, "dtype": "int64"}
    if not site.node.flag("keepdims", True):
        return site.emit("argmax", site.inputs[0], **attrs)
    found = site.helper("argmax", "argmax", site.inputs[0], **attrs)
    return site.emit("expand_dims", found, axis=axis)


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
        "ArgMax": _argmax,
    }
)
