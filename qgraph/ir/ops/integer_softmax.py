"""Softmax on codes over the last axis, with the only integer form that it has (docs/numerics.md,
section 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops.base import AnyOp, OpDef, Scale, always, never_negative
from qgraph.ir.ops.structure import QuantizerAttrs, check_spec, reach_of_spec
from qgraph.ir.types import Array, Codes, Fixed, Overflow, QuantSpec, Rounding, TensorType
from qgraph.numerics import fake_quantize
from qgraph.ops.attributes import attribute

EXPONENTIAL_BITS = 15  # fractional bits of the exponentials in the table


@dataclass(frozen=True, kw_only=True)
class IntegerSoftmaxAttrs(QuantizerAttrs):
    """From codes of `domain` to codes of `spec`, on the scale of `softmax_spec`."""

    domain: QuantSpec = attribute("fixed-point format of inputs")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_spec(self.domain)


def softmax_spec(spec: QuantSpec) -> QuantSpec:
    """`spec` on the finest scale for numbers up to 1."""
    exponent = spec.bits - spec.signed
    return replace(spec, exponent=exponent, rounding=Rounding.HALF_UP, overflow=Overflow.SATURATE)


def exponentials(domain: QuantSpec, exponent: int) -> Codes:
    """`round(2^15 * exp(-d * 2^-exponent))` for each distance d of a code from the largest one.

    The last entry is the first 0, that of all larger distances, as masked elements have.
    """
    distances = np.arange(domain.hi - domain.lo + 1, dtype=np.float64)
    with np.errstate(under="ignore", over="ignore"):
        exact = np.ldexp(np.exp(-np.ldexp(distances, -exponent)), EXPONENTIAL_BITS)
    entries = np.rint(exact).astype(np.int64)
    return np.append(entries[: np.count_nonzero(entries)], 0)


def softmax_of(codes: Codes, entries: Codes, bits: int, highest: int) -> Codes:
    """The softmax of rows of codes, rounded to nearest, ties upwards, with fractional `bits`."""
    distances = codes.max(axis=-1, keepdims=True, initial=np.iinfo(np.int64).min) - codes
    found = entries[np.minimum(distances, len(entries) - 1)]
    total = found.sum(axis=-1, keepdims=True)
    result: Codes = np.minimum(((found << bits) + total // 2) // np.maximum(total, 1), highest)
    return result


def real_softmax(x: Array) -> Array:
    """The softmax of real numbers, over the last axis, in float64."""
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(axis=-1, keepdims=True, initial=-np.inf))
    result: Array = e / e.sum(axis=-1, keepdims=True)
    return result


def _infer(attrs: IntegerSoftmaxAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if not x.is_float or not x.shape:
        raise GraphError(f"needs floats with channels, found {x}")
    return x


def _evaluate(attrs: IntegerSoftmaxAttrs, inputs: Sequence[Array]) -> Array:
    return fake_quantize(real_softmax(inputs[0]), attrs.spec).astype(inputs[0].dtype)


def _integer(attrs: IntegerSoftmaxAttrs, inputs: Sequence[Fixed]) -> Fixed:
    x = inputs[0]
    entries = exponentials(attrs.domain, int(x.exponent))
    codes = softmax_of(x.codes, entries, attrs.exponent, attrs.spec.hi)
    return Fixed(codes, attrs.exponent)


OPS: tuple[AnyOp, ...] = (
    OpDef(
        "integer_softmax", (1, 1), IntegerSoftmaxAttrs, _infer, _evaluate, _integer,
        scale=Scale.OWN, reach=reach_of_spec, nonnegative=never_negative, separate=always,
    ),
)  # fmt: skip
