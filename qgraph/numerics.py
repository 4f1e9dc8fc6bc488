"""The arithmetic that every part agrees on: quantizer, requantization, rounding.

Sources: TQT (Jain et al., 2019), sections 3.2 and 3.3, equations 4 to 8; docs/numerics.md lists the
choices of this project. Integers are int64 and floats float64, unless stated otherwise.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from qgraph import kernels
from qgraph.errors import ExactnessError
from qgraph.ir.types import (
    AnyExponent,
    Array,
    Codes,
    Exponent,
    Fixed,
    Overflow,
    QuantSpec,
    Role,
    Rounding,
)
from qgraph.kernels.rounding import round_numbers

MAX_EXPONENT = 126
E = TypeVar("E", bound=AnyExponent)
Float = npt.NDArray[np.floating[Any]]


# -- scales ---------------------------------------------------------------------------------


def exponent_for_max(largest: float, bits: int, signed: bool) -> int:
    """Exponent whose threshold is `largest` (> 0, finite): `ceil(log2)` without rounding error."""
    mantissa, power = np.frexp(largest)
    ceil_log2 = int(power) - (1 if mantissa == 0.5 else 0)
    return (bits - int(signed)) - ceil_log2


def finest_exponent(values: npt.ArrayLike, bits: int, signed: bool) -> int:
    """The finest scale on which no element of a constant of the graph is clipped.

    If `ceil(log2 max)` would clip the largest element (1/4 in 8 bits unsigned is 256 steps), the
    next coarser scale is used. An all-zero constant gets the scale of 1.
    """
    values = np.asarray(values, np.float64)
    largest = float(np.abs(values).max(initial=0.0))
    exponent = exponent_for_max(largest or 1.0, bits, signed)
    spec = QuantSpec(bits, signed, Role.CONSTANT, exponent)
    codes = np.rint(np.ldexp(values, exponent))
    return exponent - int(bool((codes > spec.hi).any() or (codes < spec.lo).any()))


def checked_exponent(exponent: E, name: str | None = None) -> E:
    """`exponent` itself. Raises ExactnessError if |f| > 126: 2^-f is not a normal float32."""
    if isinstance(exponent, int):  # most exponents: without numpy
        outside = abs(exponent) > MAX_EXPONENT
    else:
        outside = bool(np.any(np.abs(np.asarray(exponent)) > MAX_EXPONENT))
    if outside:
        raise ExactnessError(
            f"exponent {exponent} is outside -{MAX_EXPONENT}..{MAX_EXPONENT}",
            node=name,
            hint="the tensor's values are too small or too large for a float32 scale",
        )
    return exponent


def frozen_exponent(exponent: AnyExponent) -> Exponent:
    """An exponent in the form of a QuantSpec: an integer, or a tuple along the last axis."""
    if isinstance(exponent, int):  # most exponents: without numpy
        return exponent
    held = np.asarray(exponent)
    return int(held) if held.ndim == 0 else tuple(int(e) for e in held)


def aligned(exponent: AnyExponent | None, shape: tuple[int, ...]) -> Codes:
    """A per-channel exponent in a shape that broadcasts over `shape`.

    Depthwise filters [h, w, c, m] have one exponent for each of their c*m output channels.
    """
    held: Codes = np.asarray(exponent)
    if held.ndim == 1 and shape and held.size not in (1, shape[-1]):
        return held.reshape(shape[-2:])
    return held


# -- rounding -------------------------------------------------------------------------------


def round_shift(v: Codes, shift: npt.ArrayLike, rounding: str = Rounding.HALF_EVEN) -> Codes:
    """`v * 2^-shift` rounded to integers; a negative shift is an exact left shift.

    Results of a left shift are limited to +-2^62, whatever the overflow mode of the quantizer.
    """
    shift = np.asarray(shift, np.int64)
    right = np.clip(shift, 0, 62)
    left = np.clip(-shift, 0, 61)
    whole = v >> right
    rest = v - (whole << right)
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), np.iinfo(np.int64).max)
    up = _rounds_up(v, whole, rest, half, Rounding(rounding))
    limit = np.int64(1) << (np.int64(62) - left)
    result: Codes = np.clip(whole + up, -limit, limit) << left
    return result


def _rounds_up(v: Codes, whole: Codes, rest: Codes, half: Codes, rounding: Rounding) -> Array:
    """Whether each v, without the bits `rest`, is rounded to `whole + 1` instead of `whole`."""
    match rounding:
        case Rounding.HALF_EVEN:
            return np.asarray((rest > half) | ((rest == half) & (whole & 1 == 1)))
        case Rounding.HALF_UP:
            return np.asarray(rest >= half)
        case Rounding.HALF_AWAY:
            return np.asarray((rest > half) | ((rest == half) & (v >= 0)))
        case Rounding.DOUBLE:  # half up by one bit, half away by the others
            even = rest + (rest & 1)
            return np.asarray((even > half) | ((even == half) & (v >= 0)))
        case Rounding.FLOOR:
            return np.zeros_like(rest, bool)


def bring_into_range(codes: Array, spec: QuantSpec) -> Array:
    """Saturate or wrap integers (of any dtype) into the range of `spec`."""
    if spec.overflow == Overflow.WRAP:
        # Whole turns first: beyond 2^53, `- lo` is not exact in float, but the remainders are.
        return (codes % (1 << spec.bits) - spec.lo) % (1 << spec.bits) + spec.lo
    return np.clip(codes, spec.lo, spec.hi)


# -- quantizers -----------------------------------------------------------------------------


def _exponent(spec: QuantSpec, shape: tuple[int, ...]) -> Codes:
    if spec.exponent is None:
        raise ExactnessError("a quantizer has no exponent yet", hint="calibrate the graph first")
    return aligned(checked_exponent(spec.exponent), shape)


def _exponent_of_result(spec: QuantSpec) -> int | Codes:
    return spec.exponent if isinstance(spec.exponent, int) else np.asarray(spec.exponent, np.int64)


def quantize(x: npt.ArrayLike, spec: QuantSpec) -> Fixed:
    """Float to codes: `clip(round(x * 2^f), lo, hi)`.

    Raises ExactnessError on NaN, and on infinity where codes wrap.
    """
    x = np.asarray(x, np.float64)
    if np.isnan(x).any():
        raise ExactnessError(
            "NaN has no fixed-point code", hint="check the inputs of the float network"
        )
    steps = round_numbers(np.ldexp(x, _exponent(spec, x.shape)), spec.rounding)
    if spec.overflow == Overflow.WRAP and not np.isfinite(steps).all():
        raise ExactnessError(
            "infinity cannot be wrapped into a fixed-point code",
            hint="check the inputs of the float network",
        )
    codes: Codes = np.asarray(bring_into_range(steps, spec)).astype(np.int64)
    return Fixed(codes, _exponent_of_result(spec))


def quantized_constant(x: Array, spec: QuantSpec) -> Array:
    """The exact values of a constant's codes, in its own dtype, or in float64 beyond 24 bits.

    Raises ExactnessError on NaN.
    """
    if np.isnan(np.min(x, initial=0)):
        raise ExactnessError("NaN has no fixed-point code", hint="check the float network")
    return np.asarray(fake_quantize(x.astype(np.float64) if spec.bits > 24 else x, spec))


def fake_quantize(x: Array, spec: QuantSpec, out: Array | None = None) -> Array:
    """The float value of the code of each element, in the dtype of `x`; NaN stays NaN.

    out: an array for the result, such as `x` itself; it is not always used.
    """
    exponent = _exponent(spec, x.shape)
    tail = exponent.shape == x.shape[x.ndim - exponent.ndim :]
    if (
        tail
        and spec.overflow == Overflow.SATURATE
        and x.dtype == np.float32
        and x.flags.c_contiguous
    ):
        return kernels.quantize(x, exponent, spec.lo, spec.hi, spec.rounding, out)
    # In float64, because float32 would lose digits of large numbers that wrap, and of small ones.
    steps = round_numbers(np.ldexp(x.astype(np.float64), exponent), spec.rounding)
    return np.ldexp(bring_into_range(steps, spec), -exponent).astype(x.dtype)


def requantize(v: Fixed, spec: QuantSpec) -> Fixed:
    """Codes on another scale: `clip(round_shift(v, f_in - f_out), lo, hi)`."""
    exponent = _exponent(spec, v.codes.shape)
    shift = aligned(v.exponent, v.codes.shape) - exponent
    codes = bring_into_range(round_shift(v.codes, shift, spec.rounding), spec)
    return Fixed(codes, _exponent_of_result(spec))


def dequantize(v: Fixed) -> Float:
    """The float64 values of codes, exact."""
    value: Float = np.ldexp(v.codes.astype(np.float64), -aligned(v.exponent, v.codes.shape))
    return value
