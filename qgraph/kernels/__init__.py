"""Array kernels: native code if the extension is built, numpy otherwise.

Each kernel has a numpy version (`kernels/plain.py`) with the same arguments and the same results,
to the last bit. It is used if the extension is not built, and tests compare with it.

Arrays are float32 of any layout; an array that is not C-contiguous is copied first. Another dtype
raises TypeError, because a silent conversion would round. Results depend neither on the number of
threads nor on the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from qgraph.choices import Level
from qgraph.errors import UnsupportedError
from qgraph.ir.types import ROUNDINGS, Array, rounding_of_numbers
from qgraph.kernels import plain, plain_rounding
from qgraph.kernels.extension import load
from qgraph.kernels.plain import Exponents, Float32, Float64, Int64, Stage
from qgraph.ops.attribute_types import Pair

Int32 = npt.NDArray[np.int32]

# The enumeration in fused_ops/engine/kernels/kernels.h has them in this order.
NATIVE_LEVELS = tuple(Level)[1:]
MAX_LOG2_BINS = 20
MAX_EXPONENT = 256
MAX_SIGNIFICAND = 10  # that of float16
MAX_FRACTION_BITS = 126  # 2^f and 2^-f are both normal float32 numbers

# The enumerations in fused_ops/core/quantize.h have the order of these and of ROUNDINGS.
INSTRUCTION_SETS = ("plain", "avx2", "avx512")


if TYPE_CHECKING:
    from qgraph import _native

    _backend: str
else:
    _native, _backend = load()


def backend() -> str:
    """Say which implementation is in use, and why.

    Returns:
        A text that begins with `native: ` or `numpy: `.

    Examples:
        >>> backend().partition(": ")[0] in ("native", "numpy")
        True
    """
    return _backend


def not_available(part: str) -> UnsupportedError:
    """The error of a part that exists in native code only.

    Args:
        part: Name of the part, the start of the message.

    Returns:
        The error, with the reason from `backend`. The caller raises it.

    Examples:
        >>> not_available("the engine").hint
        'build it: make venv, or pip install .'
    """
    reason = _backend.partition(": ")[2]
    return UnsupportedError(
        f"{part} needs native code: {reason}", hint="build it: make venv, or pip install ."
    )


def native_engine() -> type[_native.engine] | None:
    """The native part of the integer engine (`qgraph.backends.engine`).

    Returns:
        The submodule of the extension; None if it is not built.

    Examples:
        >>> (native_engine() is None) == backend().startswith("numpy")
        True
    """
    return None if _native is None else _native.engine


def native_broadcast() -> type[_native.broadcast] | None:
    """The native part of shared memory between processes (`qgraph.rl.broadcast`).

    Returns:
        The submodule of the extension; None if it is not built.

    Examples:
        >>> (native_broadcast() is None) == backend().startswith("numpy")
        True
    """
    return None if _native is None else _native.broadcast


def native_actor() -> type[_native.actor] | None:
    """The native part of actors (`qgraph.rl.actor`).

    Returns:
        The submodule of the extension; None if it is not built.

    Examples:
        >>> (native_actor() is None) == backend().startswith("numpy")
        True
    """
    return None if _native is None else _native.actor


def set_threads(count: int) -> None:
    """Limit the threads of native kernels. The numpy versions use one thread.

    Args:
        count: The largest number of threads, at least 1.

    Raises:
        ValueError: `count` is less than 1.

    Examples:
        >>> set_threads(4)
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    if _native is not None:
        _native.set_threads(count)


def stay_on_calling_thread() -> None:
    """Make native kernels that this thread calls from now on use no other thread.

    It is for threads that share the CPUs already.

    Examples:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> with ThreadPoolExecutor(2, initializer=stay_on_calling_thread) as pool:
        ...     pool.submit(minmax, np.ones(3, np.float32)).result()
        (1.0, 1.0)
    """
    if _native is not None:
        _native.stay_on_calling_thread()


def instruction_set() -> str:
    """The instruction set of `quantize` and `quantize_gradients`.

    Returns:
        One of `INSTRUCTION_SETS`, or `numpy` without native code.

    Examples:
        >>> instruction_set() in (*INSTRUCTION_SETS, "numpy")
        True
    """
    return "numpy" if _native is None else INSTRUCTION_SETS[_native.chosen()]


def use_instruction_set(name: str) -> bool:
    """Choose the instruction set of `quantize` and `quantize_gradients`. No result changes.

    Args:
        name: One of `INSTRUCTION_SETS`.

    Returns:
        Whether it is available.

    Raises:
        ValueError: The name is unknown.

    Examples:
        >>> use_instruction_set("plain") == (instruction_set() == "plain")
        True
    """
    return _native is not None and bool(_native.choose(INSTRUCTION_SETS.index(name)))


def minmax(x: Float32) -> tuple[float, float]:
    """Compute the least and the greatest value.

    Args:
        x: Array of any shape, float32.

    Returns:
        Both values, or `(nan, nan)` if any value is NaN. A zero is returned as +0.

    Raises:
        ValueError: `x` is empty.
        TypeError: `x` is not float32.

    Examples:
        >>> minmax(np.array([[1, -2], [0.5, 3]], np.float32))
        (-2.0, 3.0)
    """
    x = _contiguous(x)
    if x.size == 0:
        raise ValueError("minmax of an empty array")
    if _native is None:
        return plain.minmax(x)
    low, high = _native.minmax(x)
    return low + 0.0, high + 0.0


def histogram(x: Float32, exponent: int, log2_bins: int) -> Int64:
    """Count the values other than zero in equal bins over `[-2**exponent, 2**exponent)`.

    A value is counted in the bin `floor(x * 2**(log2_bins - exponent))`, computed exactly. Values
    out of range and infinities are counted in the first or the last bin.

    Args:
        x: Array of any shape, float32.
        exponent: Base-2 logarithm of the range, -256 to 256.
        log2_bins: Base-2 logarithm of the number of bins on each side of zero, 0 to 20.

    Returns:
        Counts, int64 [2**(log2_bins + 1)], the most negative bin first.

    Raises:
        ValueError: A value is NaN, or an argument is out of range.
        TypeError: `x` is not float32.

    Examples:
        >>> histogram(np.array([-0.9, 0.1, 0.2, 0.6], np.float32), exponent=0, log2_bins=1)
        array([1, 0, 2, 1])
    """
    x = _contiguous(x)
    if not 0 <= log2_bins <= MAX_LOG2_BINS:
        raise ValueError(f"log2_bins must be in [0, {MAX_LOG2_BINS}], not {log2_bins}")
    if abs(exponent) > MAX_EXPONENT:
        raise ValueError(f"exponent must be in [-{MAX_EXPONENT}, {MAX_EXPONENT}], not {exponent}")
    if _native is None:
        return plain.histogram(x, exponent, log2_bins)
    counts = np.zeros(2 << log2_bins, np.int64)
    if not _native.histogram(x, 2.0 ** (log2_bins - exponent), log2_bins, counts):
        raise ValueError("histogram of an array with NaN")
    return counts


def channel_sums(x: Float32) -> Float64:
    """Sum over all axes except the last, in float64, in the order of positions.

    Args:
        x: Array [..., channels], float32.

    Returns:
        Sums, float64 [channels]; zeros if `x` is empty.

    Raises:
        TypeError: `x` is not float32.

    Examples:
        >>> channel_sums(np.array([[1, 2], [3, 4]], np.float32))
        array([4., 6.])
    """
    x = _contiguous(x)
    if x.size == 0:
        return np.zeros(x.shape[-1])
    if _native is None:
        return plain.channel_sums(x)
    sums = np.empty(x.shape[-1])
    _native.channel_sums(x, sums)
    return sums


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
    x = _contiguous(x)
    exponents = _checked_quantizer(x, f, lo, hi, rounding)
    out = _output(out, x)
    if out is not x and np.may_share_memory(x, out):
        x = x.copy()
    if _native is None or x.size == 0:
        out[...] = plain.quantize(x, exponents, lo, hi, rounding)
    else:
        _native.quantize(
            x, exponents, float(lo), float(hi), ROUNDINGS.index(rounding_of_numbers(rounding)), out
        )
    return out


def stage(
    x: Float32, stage: Stage, out: Float32 | None = None
) -> tuple[Float32, tuple[float, float]]:
    """Compute `clip(quantize(x) + bias, low, high)`, and its least and greatest value.

    Each step has the result of `quantize` and numpy. NaN stays NaN.

    Args:
        x: Array [..., channels], float32.
        stage: The quantizer, the bias [channels] and the bounds; each may be left out.
        out: Array for the result, as in `quantize`.

    Returns:
        `out` or a new array, and its range as from `minmax`.

    Raises:
        ValueError: `x` is empty, the bias has another length than the last axis of `x`, or as in
            `quantize`.
        TypeError: An array is not float32.

    Examples:
        >>> y, (low, high) = stage(np.array([[-1, 2]], np.float32), Stage(low=0.0))
        >>> y, high
        (array([[0., 2.]], dtype=float32), 2.0)
    """
    x = _contiguous(x)
    if x.size == 0:
        raise ValueError("stage of an empty array")
    exponent, lo, hi, rounding = stage.quantizer or (0, 0, 0, "half_even")
    exponents = _checked_quantizer(x, exponent, lo, hi, rounding)
    bias = None if stage.bias is None else _contiguous(stage.bias)
    if bias is not None and bias.shape != x.shape[-1:]:
        raise ValueError(f"bias must have shape {x.shape[-1:]}, not {bias.shape}")
    out = _output(out, x)
    if out is not x and np.may_share_memory(x, out):
        x = x.copy()
    if _native is None:
        out[...], ends = plain.stage(x, stage)
        return out, ends
    mode = ROUNDINGS.index(rounding_of_numbers(rounding))
    f = None if stage.quantizer is None else exponents
    low, high = _native.stage(x, f, lo, hi, mode, bias, stage.low, stage.high, out)
    return out, (low + 0.0, high + 0.0)


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
    x, g = _contiguous(x), _contiguous(g)
    exponents = _checked_quantizer(x, f, lo, hi, rounding)
    if g.shape != x.shape:
        raise ValueError(f"g must be shaped as x: {g.shape} and {x.shape}")
    out = _output(out, x)
    if out is not x and np.may_share_memory(x, out):
        x = x.copy()
    if out is not g and np.may_share_memory(g, out):
        g = g.copy()
    if _native is None or x.size == 0:
        out[...], sums = plain.quantize_gradients(x, g, exponents, lo, hi, rounding)
        return out, sums
    sums = np.empty(exponents.shape)
    mode = ROUNDINGS.index(rounding_of_numbers(rounding))
    _native.quantize_gradients(x, g, exponents, float(lo), float(hi), mode, out, sums)
    return out, sums


def _checked_quantizer(x: Float32, f: Exponents, lo: int, hi: int, rounding: str) -> Int32:
    exponents = np.asarray(f)
    if exponents.dtype.kind not in "iu" or exponents.shape != x.shape[x.ndim - exponents.ndim :]:
        raise ValueError(f"f must be integers {x.shape} or of its last axes, not {f}")
    if (np.abs(exponents) > MAX_FRACTION_BITS).any():
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
    x = _contiguous(x)
    if not 1 <= bits <= MAX_SIGNIFICAND:
        raise ValueError(f"bits must be in [1, {MAX_SIGNIFICAND}], not {bits}")
    if _native is None or x.size == 0:
        return plain.round_significand(x, bits)
    y = np.empty_like(x)
    _native.round_significand(x, bits, y)
    return y


def round_in_turn(v: Float64, lower: Float64, lo: int, hi: int) -> Float64:
    """Round to integers row by row; later rows correct the errors of earlier ones.

    Row j becomes the integer nearest to `v[j] + sum(lower[j, i] * (v[i] - q[i]))`, a sum over the
    rows i before j in their order. Products and sums are rounded one by one, in float64.

    Args:
        v: Values, float64 [groups, k, n].
        lower: Factors of errors, float64 [groups, k, k].
        lo: The least integer.
        hi: The greatest integer.

    Returns:
        Integers, float64 with the shape of `v`.

    Raises:
        ValueError: Shapes do not fit.
        TypeError: An array is not float64.

    Examples:
        >>> round_in_turn(np.array([[[0.4], [0.4]]]), np.array([[[0.0, 0], [1, 0]]]), -8, 7).ravel()
        array([0., 1.])
    """
    v, lower = _rounding_problem(v, lower)
    if _native is None or v.size == 0:
        return plain_rounding.round_in_turn(v, lower, lo, hi)
    codes = np.empty_like(v)
    _native.round_in_turn(v, lower, float(lo), float(hi), codes)
    return codes


def descend(codes: Float64, v: Float64, hessian: Float64, lo: int, hi: int, sweeps: int) -> Float64:
    """Reduce `(q - v)^T H (q - v)` of each column by steps of one.

    Steps are taken row by row wherever one reduces the error, until none does. Products and sums
    are rounded one by one, in float64.

    Args:
        codes: Integers to begin with, float64 [groups, k, n].
        v: Exact values, float64 [groups, k, n].
        hessian: Symmetric matrices H, float64 [groups, k, k].
        lo: The least integer.
        hi: The greatest integer.
        sweeps: The largest number of sweeps over all rows.

    Returns:
        Integers, float64 with the shape of `v`.

    Raises:
        ValueError: Shapes do not fit.
        TypeError: An array is not float64.

    Examples:
        >>> descend(np.zeros((1, 1, 1)), np.full((1, 1, 1), 2.2), np.ones((1, 1, 1)), -8, 7, 5)
        array([[[2.]]])
    """
    v, hessian = _rounding_problem(v, hessian)
    if codes.shape != v.shape or codes.dtype != np.float64:
        raise ValueError(f"codes must be float64 {v.shape}, not {codes.dtype} {codes.shape}")
    if _native is None or v.size == 0:
        return plain_rounding.descend(codes, v, hessian, lo, hi, sweeps)
    codes = codes.copy(order="C")
    _native.descend(v, hessian, float(lo), float(hi), sweeps, codes)
    return codes


def _rounding_problem(v: Float64, square: Float64) -> tuple[Float64, Float64]:
    if v.dtype != np.float64 or square.dtype != np.float64:
        raise TypeError(f"expected float64 arrays, not {v.dtype} and {square.dtype}")
    if v.ndim != 3 or square.shape != (*v.shape[:2], v.shape[1]):
        raise ValueError(f"expected [groups, k, n] and [groups, k, k]: {v.shape}, {square.shape}")
    return np.ascontiguousarray(v), np.ascontiguousarray(square)


def conv2d(
    x: Float32, w: Float32, strides: Pair, dilations: Pair, pads: tuple[int, int, int, int]
) -> Float32:
    """Convolve images with filters.

    Products are summed in float32 in an order that depends on the shapes alone (docs/kernels.md).
    Without native code, BLAS computes the sums, and the last bits may differ.

    Args:
        x: Images [n, h, w, c], float32.
        w: Filters [kh, kw, c / groups, outputs], float32.
        strides: Steps along height and width, at least 1.
        dilations: Distances between taps along height and width, at least 1.
        pads: Rows and columns of zeros at (top, bottom, left, right).

    Returns:
        Images [n, oh, ow, outputs], float32.

    Raises:
        ValueError: Shapes do not fit, a number is out of range, or the filter is larger than the
            padded image.
        TypeError: An array is not float32.

    Examples:
        >>> x, w = np.ones((1, 4, 4, 2), np.float32), np.ones((3, 3, 2, 1), np.float32)
        >>> conv2d(x, w, (1, 1), (1, 1), (0, 0, 0, 0))[0, 0, 0]
        array([18.], dtype=float32)
    """
    x, w = _contiguous(x), _contiguous(w)
    y = np.empty(plain.conv_shape(x, w, strides, dilations, pads), np.float32)
    if _native is None or y.size == 0 or w.size == 0:
        return plain.conv2d(x, w, strides, dilations, pads)
    _native.conv2d(x, w, strides, dilations, (pads[0], pads[2]), y)
    return y


def depthwise_conv2d(
    x: Float32,
    w: Float32,
    strides: Pair,
    dilations: Pair,
    pads: tuple[int, int, int, int],
) -> Float32:
    """Convolve each channel of images with its own filter.

    Each number is a sum in float32, from zero, in the order of (kh, kw).

    Args:
        x: Images [n, h, w, c], float32.
        w: Filters [kh, kw, c], float32.
        strides: Steps along height and width, at least 1.
        dilations: Distances between taps along height and width, at least 1.
        pads: Rows and columns of zeros at (top, bottom, left, right).

    Returns:
        Images [n, oh, ow, c], float32.

    Raises:
        ValueError: Shapes do not fit, a number is out of range, or the filter is larger than the
            padded image.
        TypeError: An array is not float32.

    Examples:
        >>> x, w = np.ones((1, 4, 4, 2), np.float32), np.ones((3, 3, 2), np.float32)
        >>> depthwise_conv2d(x, w, (1, 1), (1, 1), (0, 0, 0, 0))[0, 0, 0]
        array([9., 9.], dtype=float32)
    """
    x, w = _contiguous(x), _contiguous(w)
    y = np.zeros(plain.depthwise_shape(x, w, strides, dilations, pads), np.float32)
    if _native is None or y.size == 0 or w.size == 0:
        return plain.depthwise_conv2d(x, w, strides, dilations, pads)
    _native.depthwise_conv2d(x, w, strides, dilations, (pads[0], pads[2]), y)
    return y


def _contiguous(x: Array) -> Float32:
    array = np.asarray(x, order="C")
    if array.dtype != np.float32:
        raise TypeError(f"expected a float32 array, not {array.dtype}")
    return array
