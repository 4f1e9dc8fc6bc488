"""Quantizers, forward and backward, the stages that begin with one, and short significands."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from qgraph.ir.types import ROUNDINGS, rounding_of_numbers
from qgraph.kernels import native, plain
from qgraph.kernels.arrays import contiguous
from qgraph.kernels.plain import Exponents, Float32, Float64, Stage

Int32 = npt.NDArray[np.int32]

MAX_FRACTION_BITS = 126  # 2^f and 2^-f are both normal float32 numbers
MAX_SIGNIFICAND = 10  # that of float16


def quantize(
    x: Float32,
    f: Exponents,
    lo: int,
    hi: int,
    rounding: str = "half_even",
    out: Float32 | None = None,
) -> Float32:
    """Compute `clip(round(x * 2**f), lo, hi) * 2**-f`.

    NaN stays NaN, and zeros are positive.

    Args:
        x: Array of any shape, float32.
        f: Fraction bits, -126 to 126: one integer, or an array with the shape of the last axes of
            `x`.
        lo: The least code, at most 0.
        hi: The greatest code, at least 0.
        rounding: One of `qgraph.ir.types.ROUNDINGS`.
        out: Array for the result, float32, C-contiguous, with the shape of `x`. It may be `x`.

    Returns:
        `out`, or a new array.

    Raises:
        ValueError: An argument is out of range or unknown, or `out` does not fit.
        TypeError: `x` is not float32.

    Examples:
        >>> quantize(np.array([0.3, 0.9, 5], np.float32), f=1, lo=-8, hi=7)
        array([0.5, 1. , 3.5], dtype=float32)
    """
    x = contiguous(x)
    exponents = _checked_quantizer(x, f, lo, hi, rounding)
    out = _output(out, x)
    if out is not x and np.may_share_memory(x, out):
        x = x.copy()
    if native.extension is None or x.size == 0:
        out[...] = plain.quantize(x, exponents, lo, hi, rounding)
    else:
        native.extension.quantize(
            x, exponents, float(lo), float(hi), ROUNDINGS.index(rounding_of_numbers(rounding)), out
        )
    return out


def stage(
    x: Float32, stage: Stage, out: Float32 | None = None
) -> tuple[Float32, tuple[float, float]]:
    """Compute `min(clip(quantize(x) + bias, low, high), ceiling)`, and its extremes.

    Each step has the result of `quantize` and numpy. NaN stays NaN.

    Args:
        x: Array [..., channels], float32.
        stage: The quantizer, the bias [channels], the bounds and the ceiling [channels]; each may
            be left out.
        out: Array for the result, as in `quantize`.

    Returns:
        `out` or a new array, and its range as from `minmax`.

    Raises:
        ValueError: `x` is empty, the bias or the ceiling has another length than the last axis of
            `x`, or as in `quantize`.
        TypeError: An array is not float32.

    Examples:
        >>> y, (low, high) = stage(np.array([[-1, 2]], np.float32), Stage(low=0.0))
        >>> y, high
        (array([[0., 2.]], dtype=float32), 2.0)
    """
    x = contiguous(x)
    if x.size == 0:
        raise ValueError("stage of an empty array")
    exponent, lo, hi, rounding = stage.quantizer or (0, 0, 0, "half_even")
    exponents = _checked_quantizer(x, exponent, lo, hi, rounding)
    bias, ceiling = (_of_channels(v, x) for v in (stage.bias, stage.ceiling))
    out = _output(out, x)
    if out is not x and np.may_share_memory(x, out):
        x = x.copy()
    if native.extension is None:
        out[...], ends = plain.stage(x, stage)
        return out, ends
    mode = ROUNDINGS.index(rounding_of_numbers(rounding))
    f = None if stage.quantizer is None else exponents
    low, high = native.extension.stage(
        x, f, lo, hi, mode, bias, stage.low, stage.high, ceiling, out
    )
    return out, (low + 0.0, high + 0.0)


def _of_channels(values: Float32 | None, x: Float32) -> Float32 | None:
    """Numbers of channels as the kernel takes them. Raises ValueError if the shape is wrong."""
    if values is None:
        return None
    if values.shape != x.shape[-1:]:
        raise ValueError(f"numbers of channels must have shape {x.shape[-1:]}, not {values.shape}")
    return contiguous(values)


def quantize_gradients(
    x: Float32,
    g: Float32,
    f: Exponents,
    lo: int,
    hi: int,
    rounding: str = "half_even",
    out: Float32 | None = None,
) -> tuple[Float32, Float64]:
    """Gradients of `quantize` for `x` and for log2 t (TQT, equations 6 to 8).

    With `r = round(x * 2**f)`, an element is inside if `lo <= r <= hi`, or if it is NaN. The
    gradient for `x` is `g` inside and 0 elsewhere. The one for log2 t is
    `2**-f * ln 2 * sum(g * s)`, where `s` is `r - x * 2**f` inside, in float32, and `lo` or `hi`
    elsewhere. The order of the sum depends on the shapes alone (docs/kernels.md).

    Args:
        x: The input of `quantize`, float32.
        g: Gradient of its result, float32 with the shape of `x`.
        f: As in `quantize`.
        lo: As in `quantize`.
        hi: As in `quantize`.
        rounding: As in `quantize`.
        out: Array for the first gradient, as in `quantize`. It may be `x` or `g`.

    Returns:
        The gradient for `x`, and the one for log2 t, float64 with the shape of `f`.

    Raises:
        ValueError: As in `quantize`, or `g` has another shape than `x`.
        TypeError: `x` or `g` is not float32.

    Examples:
        >>> x = np.array([0.25, 9], np.float32)
        >>> inside, _ = quantize_gradients(x, np.ones(2, np.float32), f=0, lo=-8, hi=7)
        >>> inside
        array([1., 0.], dtype=float32)
    """
    x, g = contiguous(x), contiguous(g)
    exponents = _checked_quantizer(x, f, lo, hi, rounding)
    if g.shape != x.shape:
        raise ValueError(f"g must be shaped as x: {g.shape} and {x.shape}")
    out = _output(out, x)
    if out is not x and np.may_share_memory(x, out):
        x = x.copy()
    if out is not g and np.may_share_memory(g, out):
        g = g.copy()
    if native.extension is None or x.size == 0:
        out[...], sums = plain.quantize_gradients(x, g, exponents, lo, hi, rounding)
        return out, sums
    sums = np.empty(exponents.shape)
    mode = ROUNDINGS.index(rounding_of_numbers(rounding))
    native.extension.quantize_gradients(x, g, exponents, float(lo), float(hi), mode, out, sums)
    return out, sums


def _checked_quantizer(x: Float32, f: Exponents, lo: int, hi: int, rounding: str) -> Int32:
    exponents = np.asarray(f)
    if exponents.dtype.kind not in "iu" or exponents.shape != x.shape[x.ndim - exponents.ndim :]:
        raise ValueError(f"f must be integers {x.shape} or of its last axes, not {f}")
    # Most calls have one exponent, for which Python's integers are faster.
    largest = abs(f) if isinstance(f, int) else int(np.abs(exponents).max(initial=0))
    if largest > MAX_FRACTION_BITS:
        raise ValueError(f"f must be in [-{MAX_FRACTION_BITS}, {MAX_FRACTION_BITS}], not {f}")
    if not lo <= 0 <= hi:
        raise ValueError(f"zero must be in [lo, hi], not {lo}, {hi}")
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be one of {', '.join(ROUNDINGS)}, not {rounding}")
    return np.ascontiguousarray(exponents, np.int32).reshape(exponents.shape)


def _output(out: Float32 | None, x: Float32) -> Float32:
    if out is None:
        return np.empty_like(x)
    if out.dtype != np.float32 or out.shape != x.shape:
        raise ValueError(f"out must be float32 {x.shape}, not {out.dtype} {out.shape}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError("out must be C-contiguous and writeable")
    return out


def round_significand(x: Float32, bits: int) -> Float32:
    """Round to floats with fewer significand bits and 5 exponent bits.

    Half goes to even. Numbers below 2**-14 are subnormal. Numbers nearer to 2**16 than to the
    largest number become infinite. Zeros keep their sign, and NaN stays NaN.

    Args:
        x: Array of any shape, float32.
        bits: Bits of the significand without the leading one, 1 to 10: 10 are float16, 2 are
            float8_e5m2.

    Returns:
        The rounded values, float32 with the shape of `x`.

    Raises:
        ValueError: `bits` is out of range.
        TypeError: `x` is not float32.

    Examples:
        >>> round_significand(np.array([1.1, 1.2], np.float32), bits=2)
        array([1.  , 1.25], dtype=float32)
    """
    x = contiguous(x)
    if not 1 <= bits <= MAX_SIGNIFICAND:
        raise ValueError(f"bits must be in [1, {MAX_SIGNIFICAND}], not {bits}")
    if native.extension is None or x.size == 0:
        return plain.round_significand(x, bits)
    y = np.empty_like(x)
    native.extension.round_significand(x, bits, y)
    return y
