"""Array kernels: native code where the extension is built, plain numpy otherwise.

Each kernel has a numpy version (``kernels/plain.py``) with the same arguments and, to the bit,
the same results; it serves where the extension isn't built, such as a source checkout on
``PYTHONPATH``, and as the reference for tests.

Arrays are float32 of any layout; one that isn't C-contiguous is copied first. Any other dtype
raises ``TypeError``, because a silent conversion would round. Results depend neither on the
number of threads nor on the CPU.
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
    """Say which implementation is in use and why: ``"native: ..."`` or ``"numpy: ..."``."""
    return _backend


def not_available(part: str) -> UnsupportedError:
    """The error of a part that is native code only, with the reason from `backend`."""
    reason = _backend.partition(": ")[2]
    return UnsupportedError(
        f"{part} needs native code: {reason}", hint="build it: make venv, or pip install ."
    )


def native_engine() -> type[_native.engine] | None:
    """The integer engine's native half, for qgraph/backends/engine; None where it isn't built."""
    return None if _native is None else _native.engine


def native_broadcast() -> type[_native.broadcast] | None:
    """Shared memory of processes, for qgraph/rl/broadcast; None where it is not built."""
    return None if _native is None else _native.broadcast


def native_actor() -> type[_native.actor] | None:
    """The actor's native half, for qgraph/rl/actor; None where it isn't built."""
    return None if _native is None else _native.actor


def set_threads(count: int) -> None:
    """Bound the threads of native kernels (at least 1); numpy versions use one."""
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    if _native is not None:
        _native.set_threads(count)


def stay_on_calling_thread() -> None:
    """Let native kernels that this thread calls from now on use no other thread.

    For threads that share the CPUs already.
    """
    if _native is not None:
        _native.stay_on_calling_thread()


def instruction_set() -> str:
    """Return the instruction set of `quantize` and `quantize_gradients`."""
    return "numpy" if _native is None else INSTRUCTION_SETS[_native.chosen()]


def use_instruction_set(name: str) -> bool:
    """Choose one of `INSTRUCTION_SETS`; False if it is not available. No result changes."""
    return _native is not None and bool(_native.choose(INSTRUCTION_SETS.index(name)))


def minmax(x: Float32) -> tuple[float, float]:
    """Return the least and the greatest value of ``x``, or ``(nan, nan)`` if any is NaN.

    A zero is returned positive. Raises ``ValueError`` if ``x`` is empty.
    """
    x = _contiguous(x)
    if x.size == 0:
        raise ValueError("minmax of an empty array")
    if _native is None:
        return plain.minmax(x)
    low, high = _native.minmax(x)
    return low + 0.0, high + 0.0


def histogram(x: Float32, exponent: int, log2_bins: int) -> Int64:
    """Count the values of ``x`` but zeros in equal bins over ``[-2**exponent, 2**exponent)``.

    There are ``2**log2_bins`` bins on each side of zero; the result, int64 of length
    ``2**(log2_bins + 1)``, starts at the most negative one. A value falls in the bin
    ``floor(x * 2**(log2_bins - exponent))``, computed exactly; values out of range, infinities
    included, are counted in the end bins.

    Raises ``ValueError`` if a value is NaN, or unless ``0 <= log2_bins <= 20`` and
    ``-256 <= exponent <= 256``.
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
    """Sum ``x`` over all axes but the last, in float64, position after position.

    The result has a number for each channel; all are zero where ``x`` is empty.
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
    """Round ``x`` to multiples of ``2**-f`` whose integers are in ``[lo, hi]``.

    The result is float32 ``clip(round(x * 2**f), lo, hi) * 2**-f``, shaped as ``x``. ``f`` is one
    exponent, or an array of them of the shape of the last axes of ``x``. NaN stays NaN, and zeros
    are positive. The result is written to ``out``, which may be ``x`` itself, where one is given.

    Raises ``ValueError`` if ``|f| > 126``, unless ``lo <= 0 <= hi``, if the rounding is unknown,
    or if ``out`` isn't a C-contiguous, writeable float32 array of the shape of ``x``.
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
    """Return ``clip(quantize(x) + bias, low, high)``, and its least and greatest value.

    Each step is what `quantize` and numpy compute; NaN stays NaN, and the range is as `minmax` has
    it. The result is written to ``out``, which may be ``x`` itself, where one is given.

    Raises ``ValueError`` as `quantize` and `minmax` do, and if the bias isn't as long as the last
    axis of ``x``.
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
    """Gradients of `quantize`, where ``g`` is that of its result: for ``x``, and for log2 t.

    With ``r = round(x * 2**f)``, an element is inside unless ``r < lo`` or ``r > hi``; a NaN is.
    The first gradient is ``g`` inside and 0 elsewhere; it is written to ``out``, which may be
    ``x`` or ``g``, where one is given. The second (TQT, equations 6 to 8), float64 of the shape
    of ``f``, is ``2**-f * ln 2 * sum(g * s)`` with ``s = r - x * 2**f`` inside, in float32, and
    ``lo`` or ``hi`` beyond. The order of the sum depends on nothing but the shapes
    (docs/kernels.md).

    Raises ``ValueError`` as `quantize` does, and if ``g`` isn't shaped as ``x``.
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
    """Round ``x`` to floats of ``bits`` significand bits and 5 exponent bits.

    The leading one is not counted: 10 bits are float16, 2 are float8_e5m2. Half goes to even;
    below 2^-14 numbers are subnormal, and what lies nearer to 2^16 than to the largest number is
    infinite. Zeros keep their sign; NaN stays NaN. The result is float32, shaped as ``x``.

    Raises ``ValueError`` unless ``1 <= bits <= 10``.
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
    """Round ``v`` [groups, k, n] to integers in ``[lo, hi]``, row after row of each group.

    What a row is off is made up by those after it: row j is the integer nearest to
    ``v[j] + sum(lower[j, i] * (v[i] - q[i]))``, the sum over rows i before j in their order.
    ``lower`` is [groups, k, k]. Everything is float64, products and sums rounded one by one.

    Raises ``ValueError`` if shapes disagree, ``TypeError`` if an array is not float64.
    """
    v, lower = _rounding_problem(v, lower)
    if _native is None or v.size == 0:
        return plain_rounding.round_in_turn(v, lower, lo, hi)
    codes = np.empty_like(v)
    _native.round_in_turn(v, lower, float(lo), float(hi), codes)
    return codes


def descend(codes: Float64, v: Float64, hessian: Float64, lo: int, hi: int, sweeps: int) -> Float64:
    """Lower ``(q - v)^T H (q - v)`` by steps of one from ``codes``, each column on its own.

    Steps are taken row after row wherever one lowers the error, at most ``sweeps`` times through
    all rows, fewer where none is left. ``codes`` and ``v`` are [groups, k, n], ``hessian``
    [groups, k, k] is symmetric; everything is float64, products and sums rounded one by one.

    Raises ``ValueError`` if shapes disagree, ``TypeError`` if an array is not float64.
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
    """Convolve ``x`` [n, h, w, c] with filters ``w`` [kh, kw, c / groups, outputs].

    ``pads`` are the zeros added at (top, bottom, left, right). The result is float32
    [n, oh, ow, outputs]. Products are added up in float32 in an order that the shapes define
    (docs/kernels.md). Without native code BLAS adds them up, and the last bits may differ.

    Raises ``ValueError`` if shapes disagree, a stride or dilation is below 1, a pad is negative,
    or the filter doesn't fit the padded image.
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
    """Convolve each channel of ``x`` [n, h, w, c] with its own filter of ``w`` [kh, kw, c].

    ``pads`` are the zeros added at (top, bottom, left, right). The result is float32
    [n, oh, ow, c]; each number is summed in float32, from zero, in the order of (kh, kw).

    Raises ``ValueError`` if shapes disagree, a stride or dilation is below 1, a pad is negative,
    or the filter doesn't fit the padded image.
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
