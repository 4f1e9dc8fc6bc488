"""Standardization over channels, `(x - mean) / sqrt(variance + epsilon)`: the first
step of a layer norm, with the only integer form that it has (docs/numerics.md, section 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qgraph.errors import ExactnessError, GraphError
from qgraph.ir.ops.base import AnyOp, OpDef, Scale
from qgraph.ir.ops.structure import QuantizerAttrs, check_spec, reach_of_spec
from qgraph.ir.types import (
    AnyExponent,
    Array,
    Codes,
    Fixed,
    Overflow,
    QuantSpec,
    Rounding,
    TensorType,
)
from qgraph.numerics import MAX_EXPONENT, fake_quantize, finest_exponent
from qgraph.ops.attributes import attribute

SQUARE_BITS = 52  # bits of the argument of a root: floor(sqrt) of float64 is exact below 2^52
INPUT_BITS = 25  # bits of sums of codes: their squares leave room for epsilon


@dataclass(frozen=True, kw_only=True)
class StandardizationAttrs(QuantizerAttrs):
    """From codes of `domain` to codes of `spec`, on the scale of `result_spec`."""

    epsilon: float = attribute("added to variances")
    domain: QuantSpec = attribute("fixed-point format of inputs")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_spec(self.domain)


@dataclass(frozen=True)
class Standardization:
    """The numbers of one layer.

    `guard` is the number of fractional bits of the root, `epsilon` is in units of squares, with the
    guard; `shift` is applied to deviations before the division.
    """

    guard: int
    epsilon: int
    shift: int


def widest_input(channels: int) -> int:
    """The largest width of codes for which sums over `channels` are exact."""
    return INPUT_BITS - (channels - 1).bit_length()


def result_spec(spec: QuantSpec, channels: int) -> QuantSpec:
    """`spec` on the finest scale for all results, which are at most sqrt(channels - 1)."""
    exponent = finest_exponent(np.sqrt(channels - 1.0), spec.bits, spec.signed)
    return replace(spec, exponent=exponent, rounding=Rounding.HALF_UP, overflow=Overflow.SATURATE)


def largest_square(attrs: StandardizationAttrs, channels: int) -> int:
    """Upper bound of the square of a sum of input codes."""
    return int((channels * ((1 << attrs.domain.bits) - 1)) ** 2)


def standardization(
    attrs: StandardizationAttrs,
    channels: int,
    exponent: AnyExponent | None,
    name: str | None = None,
) -> Standardization:
    """The numbers for an input of this exponent.

    Raises ExactnessError if scales are too far apart.
    """
    if exponent is None:
        raise GraphError("its input is not in fixed point", node=name)
    if np.ndim(exponent):
        raise ExactnessError("its input has a scale for each channel", node=name)
    unit = int(np.asarray(exponent))
    largest = float(largest_square(attrs, channels))
    epsilon = float(np.ldexp(attrs.epsilon * channels**2, 2 * unit))
    made = attrs.exponent
    for guard in range(SQUARE_BITS // 2, max(-made, 0) - 1, -1):
        if np.ldexp(largest + epsilon, 2 * guard) < 1 << SQUARE_BITS:
            return Standardization(guard, int(np.rint(np.ldexp(epsilon, 2 * guard))), made + guard)
    raise ExactnessError(
        f"its root passes {SQUARE_BITS} bits: it has {channels} channels, and epsilon "
        f"{attrs.epsilon:g} is large compared with its input's unit, 2^-{unit}",
        node=name,
        hint="use fewer bits, or a profile override for the layer before it",
    )


def finest_input(attrs: StandardizationAttrs, channels: int) -> int:
    """The largest exponent of the input for which `standardization` has numbers.

    On a finer scale, epsilon alone would exceed the bits; on this scale it is still much larger
    than the rounding error.
    """
    if attrs.epsilon <= 0:
        return MAX_EXPONENT
    remaining = (1 << SQUARE_BITS) - largest_square(attrs, channels)
    guard = max(-attrs.exponent, 0)
    return int(np.floor(np.log2(remaining / (attrs.epsilon * channels**2)) / 2)) - guard - 1


def standardized(codes: Array, numbers: Standardization) -> Codes:
    """`round(deviation * 2^shift / root)`, ties upwards: codes of the last axis, standardized."""
    channels = codes.shape[-1]
    total = codes.sum(axis=-1, keepdims=True)
    square = channels * (codes * codes).sum(axis=-1, keepdims=True) - total * total
    square = (square << 2 * numbers.guard) + numbers.epsilon
    # One more than the integer part of the root: never 0, and large enough to keep codes in range.
    root = np.floor(np.sqrt(square.astype(np.float64))).astype(np.int64) + 1
    deviation = (channels * codes - total) << numbers.shift
    result: Codes = (2 * deviation + root) // (2 * root)
    return result


def normal(attrs: StandardizationAttrs, x: Array) -> Array:
    """Values of codes in float64, where the order of sums has no effect."""
    centred = x - x.mean(axis=-1, keepdims=True, dtype=np.float64)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    # Where the variance is 0, so are the deviations.
    deviation = np.sqrt(np.maximum(variance + attrs.epsilon, np.finfo(np.float64).tiny))
    result: Array = centred / deviation
    return result


def _infer(attrs: StandardizationAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if not x.is_float or not x.shape or x.shape[-1] is None:
        raise GraphError(f"standardizes floats of known channels, found {x}")
    return x


def _evaluate(attrs: StandardizationAttrs, inputs: Sequence[Array]) -> Array:
    return fake_quantize(normal(attrs, inputs[0]), attrs.spec).astype(inputs[0].dtype)


def _integer(attrs: StandardizationAttrs, inputs: Sequence[Fixed]) -> Fixed:
    x = inputs[0]
    numbers = standardization(attrs, x.codes.shape[-1], x.exponent)
    return Fixed(standardized(x.codes, numbers), attrs.exponent)


OPS: tuple[AnyOp, ...] = (
    OpDef(
        "standardize", (1, 1), StandardizationAttrs, _infer, _evaluate, _integer,
        scale=Scale.OWN, reach=reach_of_spec,
    ),
)  # fmt: skip
