"""Array kernels: native code where the extension is built, plain numpy otherwise.

Each kernel has a numpy version beside it (``numpy_*``) with the same arguments and, to the
bit, the same results; it serves where the extension isn't built, such as a source checkout on
``PYTHONPATH``, and as the reference for tests.

Arrays are float32 of any layout; one that isn't C-contiguous is copied first. Any other dtype
raises ``TypeError``, because a silent conversion would round. Results depend neither on the
number of threads nor on the CPU.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
Pair = tuple[int, int]

MAX_LOG2_BINS = 20
MAX_EXPONENT = 256
MAX_FRACTION_BITS = 126  # 2^f and 2^-f are both normal float32 numbers


def _load() -> tuple[ModuleType | None, str]:
    try:
        module = importlib.import_module("qgraph._native")
    except ImportError as error:
        return None, f"numpy: the native extension isn't available ({error})"
    return module, f"native: {module.__file__}"


_native, _backend = _load()


def backend() -> str:
    """Say which implementation is in use and why: ``"native: ..."`` or ``"numpy: ..."``."""
    return _backend


def set_threads(count: int) -> None:
    """Bound the threads of native kernels (at least 1); numpy versions use one."""
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    if _native is not None:
        _native.set_threads(count)


def minmax(x: Float32) -> tuple[float, float]:
    """Return the least and the greatest value of ``x``, or ``(nan, nan)`` if any is NaN.

    A zero is returned positive. Raises ``ValueError`` if ``x`` is empty.
    """
    x = _contiguous(x)
    if x.size == 0:
        raise ValueError("minmax of an empty array")
    if _native is None:
        return numpy_minmax(x)
    low, high = _native.minmax(x)
    return low + 0.0, high + 0.0


def numpy_minmax(x: Float32) -> tuple[float, float]:
    """Do what `minmax` does, in numpy."""
    return float(np.min(x)) + 0.0, float(np.max(x)) + 0.0


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
        return numpy_histogram(x, exponent, log2_bins)
    counts = np.zeros(2 << log2_bins, np.int64)
    if not _native.histogram(x, 2.0 ** (log2_bins - exponent), log2_bins, counts):
        raise ValueError("histogram of an array with NaN")
    return counts


def numpy_histogram(x: Float32, exponent: int, log2_bins: int) -> Int64:
    """Do what `histogram` does, in numpy."""
    if np.isnan(x).any():
        raise ValueError("histogram of an array with NaN")
    half = 1 << log2_bins
    scaled = x.astype(np.float64).ravel() * 2.0 ** (log2_bins - exponent)
    index = np.clip(np.floor(scaled), -half, half - 1).astype(np.int64) + half
    index = index[x.ravel() != 0]
    return np.bincount(index, minlength=2 * half).astype(np.int64, copy=False)


def fake_quant(x: Float32, f: int, lo: int, hi: int, out: Float32 | None = None) -> Float32:
    """Round ``x`` to multiples of ``2**-f`` whose integers are in ``[lo, hi]``.

    The result is float32 ``clip(round_half_even(x * 2**f), lo, hi) * 2**-f``, shaped as ``x``.
    NaN stays NaN, and zeros are positive. It is written to ``out``, which may be ``x`` itself,
    where one is given.

    Raises ``ValueError`` if ``|f| > 126``, if ``lo > hi``, or if ``out`` isn't a C-contiguous,
    writeable float32 array of the shape of ``x``.
    """
    x = _contiguous(x)
    if abs(f) > MAX_FRACTION_BITS:
        raise ValueError(f"f must be in [-{MAX_FRACTION_BITS}, {MAX_FRACTION_BITS}], not {f}")
    if lo > hi:
        raise ValueError(f"lo must not exceed hi: {lo} > {hi}")
    if out is None:
        out = np.empty_like(x)
    elif out.dtype != np.float32 or out.shape != x.shape:
        raise ValueError(f"out must be float32 {x.shape}, not {out.dtype} {out.shape}")
    elif not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError("out must be C-contiguous and writeable")
    elif out is not x and np.may_share_memory(x, out):
        x = x.copy()
    if _native is None:
        out[...] = numpy_fake_quant(x, f, lo, hi)
    else:
        _native.fake_quant(x, f, float(lo), float(hi), out)
    return out


def numpy_fake_quant(x: Float32, f: int, lo: int, hi: int) -> Float32:
    """Do what `fake_quant` does, in numpy."""
    scaled = np.rint(x.astype(np.float64) * 2.0**f)
    rounded = np.clip(scaled, float(lo), float(hi)) * 2.0**-f + 0.0
    with np.errstate(over="ignore"):
        return rounded.astype(np.float32)


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
    y = np.zeros(_depthwise_shape(x, w, strides, dilations, pads), np.float32)
    if _native is None or y.size == 0 or w.size == 0:
        return numpy_depthwise_conv2d(x, w, strides, dilations, pads)
    _native.depthwise_conv2d(x, w, strides, dilations, (pads[0], pads[2]), y)
    return y


def numpy_depthwise_conv2d(
    x: Float32,
    w: Float32,
    strides: Pair,
    dilations: Pair,
    pads: tuple[int, int, int, int],
) -> Float32:
    """Do what `depthwise_conv2d` does, in numpy."""
    n, oh, ow, c = _depthwise_shape(x, w, strides, dilations, pads)
    top, bottom, left, right = pads
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    y = np.zeros((n, oh, ow, c), np.float32)
    for kh in range(w.shape[0]):
        rows = slice(kh * dilations[0], kh * dilations[0] + (oh - 1) * strides[0] + 1, strides[0])
        for kw in range(w.shape[1]):
            first = kw * dilations[1]
            y += padded[:, rows, first : first + (ow - 1) * strides[1] + 1 : strides[1]] * w[kh, kw]
    return y


def _depthwise_shape(
    x: Float32, w: Float32, strides: Pair, dilations: Pair, pads: tuple[int, int, int, int]
) -> tuple[int, int, int, int]:
    if x.ndim != 4 or w.ndim != 3 or x.shape[3] != w.shape[2]:
        raise ValueError(f"expected x [n, h, w, c] and w [kh, kw, c], not {x.shape} and {w.shape}")
    if min(*strides, *dilations) < 1 or min(pads) < 0:
        raise ValueError(
            f"strides and dilations must be at least 1 and pads at least 0, "
            f"not {strides}, {dilations} and {pads}"
        )
    sizes = []
    for axis in range(2):
        span = (w.shape[axis] - 1) * dilations[axis] + 1
        padded = x.shape[1 + axis] + pads[2 * axis] + pads[2 * axis + 1]
        if span > padded or w.shape[axis] == 0:
            raise ValueError(f"a filter of {span} doesn't fit a padded image of {padded}")
        sizes.append((padded - span) // strides[axis] + 1)
    return x.shape[0], sizes[0], sizes[1], x.shape[3]


def _contiguous(x: Any) -> Float32:
    array = np.asarray(x, order="C")
    if array.dtype != np.float32:
        raise TypeError(f"expected a float32 array, not {array.dtype}")
    return array
