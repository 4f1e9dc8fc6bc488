"""Elementwise arithmetic and activations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.frontends.tf.builder import Importer, Result, TfSite
from qgraph.frontends.tf.node import NOT_NUMPY
from qgraph.ir.ops import OPS

NUMBERS = ((0, "zero"), (1, "one"))


def _numeric(site: TfSite) -> bool:
    return not any(site.type(i).dtype in NOT_NUMPY for i in range(len(site.inputs)))


def _plain(op: str) -> Importer:
    return lambda site: site.emit(op, *site.inputs) if _numeric(site) else None


def _float_only(op: str) -> Importer:
    """Importer of ops whose integer form in TensorFlow is another function, or missing."""
    return lambda site: site.emit(op, *site.inputs) if site.type().is_float else None


def _add_n(site: TfSite) -> Result:
    if not _numeric(site):
        return None
    if len(site.inputs) == 1:
        return site.emit("identity", site.inputs[0])
    total, *rest = site.inputs
    for i, term in enumerate(rest[:-1]):
        total = site.helper(f"sum{i}", "add", total, term)
    return site.emit("add", total, rest[-1])


def _less(op: str) -> Importer:
    def importer(site: TfSite) -> Result:
        a, b = site.inputs
        return site.emit(op, b, a) if _numeric(site) else None

    return importer


def _equality(op: str) -> Importer:
    """Without `incompatible_shape_error`, shapes that do not fit are unequal: not expressed."""

    def importer(site: TfSite) -> Result:
        strict = site.node.flag("incompatible_shape_error", True)
        return site.emit(op, *site.inputs) if strict and _numeric(site) else None

    return importer


def _select(site: TfSite) -> Result:
    """`SelectV2` broadcasts; `Select` also takes one condition for each row, which stays opaque."""
    if site.type(1).dtype in NOT_NUMPY:
        return None
    conditions, values = site.type(0).rank, site.type(1).rank
    if site.node.op == "Select" and (values is None or conditions not in (0, values)):
        return None
    return site.emit("select", *site.inputs)


def _is_nan(site: TfSite) -> Result:
    x = site.inputs[0]
    return site.emit("not_equal", x, x) if site.type().is_float else None


def _erfc(site: TfSite) -> Result:
    """1 - erf(x)"""
    if not site.type().is_float:
        return None
    one = site.const(np.ones((), site.type().dtype), "one")
    return site.emit("sub", one, site.helper("erf", "erf", site.inputs[0]))


def _div_no_nan(site: TfSite) -> Result:
    """a / b, or 0 where b is 0"""
    if not site.type().is_float:
        return None
    a, b = site.inputs
    zero, one = (site.const(np.asarray(n, site.type().dtype), what) for n, what in NUMBERS)
    nothing = site.helper("nothing", "equal", b, zero)
    divisor = site.helper("divisor", "select", nothing, one, b)
    quotient = site.helper("quotient", "div", a, divisor)
    return site.emit("select", nothing, zero, quotient)


def _leaky_relu(site: TfSite) -> Result:
    return site.emit("leaky_relu", site.inputs[0], alpha=site.node.real("alpha", 0.2))


def _softmax(site: TfSite) -> Result:
    return site.emit("softmax", site.inputs[0], axis=-1)


def _cast(site: TfSite) -> Result:
    target = site.node.dtype("DstT", "")
    if not target or target in NOT_NUMPY or not _numeric(site):
        return None
    if target == site.type().dtype:
        return site.emit("identity", site.inputs[0])
    return site.emit("cast", site.inputs[0], dtype=target)


# By the names in the definitions of ops.
NAMED: Mapping[str, Importer] = MappingProxyType(
    {
        op.formats.tensorflow: (_plain if op.formats.of_integers else _float_only)(op.name)
        for op in OPS.values()
        if op.formats.tensorflow
    }
)
IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "Add": _plain("add"),
        "Div": _float_only("div"),
        "Inv": _float_only("reciprocal"),
        "DivNoNan": _div_no_nan,
        "Rint": _float_only("round"),
        "Greater": _plain("greater"),
        "GreaterEqual": _plain("greater_equal"),
        "LogicalAnd": _plain("logical_and"),
        "LogicalOr": _plain("logical_or"),
        "LogicalNot": _plain("logical_not"),
        "Less": _less("greater"),
        "LessEqual": _less("greater_equal"),
        "Equal": _equality("equal"),
        "NotEqual": _equality("not_equal"),
        "IsNan": _is_nan,
        "Select": _select,
        "SelectV2": _select,
        "AddN": _add_n,
        "Erfc": _erfc,
        "LeakyRelu": _leaky_relu,
        "Softmax": _softmax,
        "Cast": _cast,
    }
)
