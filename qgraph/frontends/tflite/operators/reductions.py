"""Reductions over axes, and norms of rows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.errors import UnsupportedError
from qgraph.frontends.local_response import MAX_CHANNELS, neighbours
from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.operators.translator import Translator
from qgraph.frontends.tflite.translation import Translation

SMALLEST_NORM = 1e-6  # of L2_NORMALIZATION, in LiteRT


def _reduction(op: str) -> Translator:
    return lambda t: t.emit(op, t.input(0), t.input(1), keep_dims=bool(t.optional("KeepDims")))


def _place(op: str) -> Translator:
    def write(t: Translation) -> Ref:
        t.optional("OutputType")
        return t.emit(op, t.input(0), t.input(1), output_type=t.dtype(t.output()))

    return write


def _cumulative_sum(t: Translation) -> Ref:
    attrs = {"exclusive": bool(t.optional("Exclusive")), "reverse": bool(t.optional("Reverse"))}
    return t.emit("Cumsum", t.input(0), t.input(1), **attrs)


def _l2_norm(t: Translation) -> Ref:
    """Rows divided by their length."""
    x, axis = t.input(0), t.integers(-1, "axis")
    total = t.emit("Sum", t.emit("Square", x), axis, keep_dims=True)
    length = t.emit("Maximum", t.emit("Sqrt", total), t.scalar(SMALLEST_NORM, "smallest"))
    return t.activated(t.emit("RealDiv", x, length))


def _local_response(t: Translation) -> Ref:
    """x * (bias + alpha * sum of squares) ** -beta. LiteRT adds up `radius` channels before each
    one, and one channel less behind it.
    """
    x, radius, channels = t.input(0), int(t.option("Radius")), t.tensor(0).shape[-1]
    bias, alpha, power = (
        t.scalar(sign * t.option(name), name)
        for name, sign in (("Bias", 1), ("Alpha", 1), ("Beta", -1))
    )
    if not 0 < channels <= MAX_CHANNELS or radius < 1:
        raise UnsupportedError(f"radius {radius} among {channels} channels", node=t.name)
    band = t.const(neighbours(channels, radius, radius - 1), "band")
    total = t.emit("BatchMatMulV2", t.emit("Square", x), band)
    base = t.emit("AddV2", t.emit("Mul", total, alpha), bias)
    return t.emit("Mul", x, t.emit("Pow", base, power))


OPERATORS: Mapping[str, Translator] = MappingProxyType(
    {
        "MEAN": _reduction("Mean"),
        "SUM": _reduction("Sum"),
        "REDUCE_MAX": _reduction("Max"),
        "REDUCE_MIN": _reduction("Min"),
        "REDUCE_PROD": _reduction("Prod"),
        "ARG_MAX": _place("ArgMax"),
        "ARG_MIN": _place("ArgMin"),
        "CUMSUM": _cumulative_sum,
        "L2_NORMALIZATION": _l2_norm,
        "LOCAL_RESPONSE_NORMALIZATION": _local_response,
    }
)
