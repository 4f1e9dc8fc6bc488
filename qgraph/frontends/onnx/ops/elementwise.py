"""Elementwise arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.onnx.builder import Importer, Result, Site


def _plain(op: str, *, float_only: bool = False) -> Importer:
    """For ops that numpy and ONNX compute alike, some only in float."""

    def importer(site: Site) -> Result:
        kinds = {site.type(i).dtype for i in range(len(site.inputs))}
        if len(kinds) > 1 or kinds & {"string", "bool"}:
            return None
        if float_only and not site.type().is_float:
            return None
        return site.emit(op, *site.inputs)

    return importer


def _pow(site: Site) -> Result:
    if not site.type().is_float:
        return None
    x, exponent = site.inputs
    dtype = site.type().dtype
    if site.type(1).dtype != dtype:
        exponent = site.helper("exponent", "cast", exponent, dtype=dtype)
    return site.emit("pow", x, exponent)


def _fold(op: str) -> Importer:
    """An op of any number of inputs, two at a time."""

    def importer(site: Site) -> Result:
        kinds = {site.type(i).dtype for i in range(len(site.inputs))}
        if len(kinds) > 1 or not site.inputs:
            return None
        if len(site.inputs) == 1:
            return site.emit("identity", site.inputs[0])
        total = site.inputs[0]
        for i, term in enumerate(site.inputs[1:-1]):
            total = site.helper(f"part{i}", op, total, term)
        return site.emit(op, total, site.inputs[-1])

    return importer


def _mean(site: Site) -> Result:
    if not site.type().is_float or len(site.inputs) < 2:
        return _fold("add")(site)
    total = site.inputs[0]
    for i, term in enumerate(site.inputs[1:]):
        total = site.helper(f"part{i}", "add", total, term)
    return site.emit("mul", total, site.scalar(1 / len(site.inputs), "share"))


def _less_or_equal(site: Site) -> Result:
    if site.type(0).dtype != site.type(1).dtype or site.type().dtype == "string":
        return None
    return site.emit("greater_equal", site.inputs[1], site.inputs[0])


def _where(site: Site) -> Result:
    if site.type(1).dtype != site.type(2).dtype or site.type(1).dtype == "string":
        return None
    return site.emit("select", *site.inputs)


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        **{
            op: _plain(name)
            for op, name in {
                "Add": "add", "Sub": "sub", "Mul": "mul", "Neg": "neg", "Abs": "abs",
                "GreaterOrEqual": "greater_equal", "Equal": "equal",
            }.items()
        },
        **{
            op: _plain(name, float_only=True)
            for op, name in {
                "Div": "div", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Floor": "floor",
                "Reciprocal": "reciprocal",
            }.items()
        },
        "Pow": _pow,
        "Max": _fold("maximum"),
        "Min": _fold("minimum"),
        "Sum": _fold("add"),
        "Mean": _mean,
        "LessOrEqual": _less_or_equal,
        "Where": _where,
    }
)  # fmt: skip
