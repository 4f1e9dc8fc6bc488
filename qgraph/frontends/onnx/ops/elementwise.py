"""Elementwise arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.ir.ops import OPS


def _plain(op: str, *, float_only: bool = False) -> Importer:
    """Importer of ops that numpy and ONNX compute alike, some only in float."""

    def importer(site: OnnxSite) -> Result:
        kinds = {site.type(i).dtype for i in range(len(site.inputs))}
        if len(kinds) > 1 or kinds & {"string", "bool"}:
            return None
        if float_only and not site.type().is_float:
            return None
        return site.emit(op, *site.inputs)

    return importer


def _pow(site: OnnxSite) -> Result:
    if not site.type().is_float:
        return None
    x, exponent = site.inputs
    dtype = site.type().dtype
    if site.type(1).dtype != dtype:
        exponent = site.helper("exponent", "cast", exponent, dtype=dtype)
    return site.emit("pow", x, exponent)


def _fold(op: str) -> Importer:
    """An op of any number of inputs, two at a time."""

    def importer(site: OnnxSite) -> Result:
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


def _mean(site: OnnxSite) -> Result:
    if not site.type().is_float:
        return None
    if len(site.inputs) == 1:
        return site.emit("identity", site.inputs[0])
    total = site.inputs[0]
    for i, term in enumerate(site.inputs[1:]):
        total = site.helper(f"part{i}", "add", total, term)
    return site.emit("mul", total, site.scalar(1 / len(site.inputs), "share"))


def _compared(op: str, *, swap: bool = False, bools: bool = False) -> Importer:
    def importer(site: OnnxSite) -> Result:
        kinds = {site.type(i).dtype for i in range(2)}
        if len(kinds) > 1 or "string" in kinds or (kinds == {"bool"} and not bools):
            return None
        a, b = site.inputs
        return site.emit(op, b, a) if swap else site.emit(op, a, b)

    return importer


def _logical(op: str) -> Importer:
    def importer(site: OnnxSite) -> Result:
        bools = all(site.type(i).dtype == "bool" for i in range(len(site.inputs)))
        return site.emit(op, *site.inputs) if bools else None

    return importer


def _is_nan(site: OnnxSite) -> Result:
    """NaN is the only number that does not equal itself."""
    x = site.inputs[0]
    return site.emit("not_equal", x, x) if site.type().is_float else None


def _is_inf(site: OnnxSite) -> Result:
    node, x = site.node, site.inputs[0]
    below, above = (node.flag(f"detect_{sign}", True) for sign in ("negative", "positive"))
    if not site.type().is_float or not (below or above):
        return None
    if below and above:
        x = site.helper("size", "abs", x)
    return site.emit("equal", x, site.scalar(np.inf if above else -np.inf, "infinity"))


def _where(site: OnnxSite) -> Result:
    if site.type(1).dtype != site.type(2).dtype or site.type(1).dtype == "string":
        return None
    return site.emit("select", *site.inputs)


# By the names in the definitions of ops.
NAMED: Mapping[str, Importer] = MappingProxyType(
    {
        op.formats.onnx: _plain(op.name, float_only=not op.formats.of_integers)
        for op in OPS.values()
        if op.formats.onnx
    }
)
IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "Pow": _pow,
        "Max": _fold("maximum"),
        "Min": _fold("minimum"),
        "Sum": _fold("add"),
        "Mean": _mean,
        "Equal": _compared("equal", bools=True),
        "Greater": _compared("greater"),
        "GreaterOrEqual": _compared("greater_equal"),
        "Less": _compared("greater", swap=True),
        "LessOrEqual": _compared("greater_equal", swap=True),
        "And": _logical("logical_and"),
        "Or": _logical("logical_or"),
        "Not": _logical("logical_not"),
        "Xor": _logical("not_equal"),
        "IsNaN": _is_nan,
        "IsInf": _is_inf,
        "Where": _where,
    }
)
