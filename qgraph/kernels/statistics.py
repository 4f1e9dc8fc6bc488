"""Statistics of float32 arrays: extremes, histograms and sums."""

from __future__ import annotations

import numpy as np

from qgraph.kernels import native, plain
from qgraph.kernels.arrays import contiguous
from qgraph.kernels.plain import Float32, Float64, Int64

MAX_LOG2_BINS = 20
MAX_EXPONENT = 256


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
    x = contiguous(x)
    if x.size == 0:
        raise ValueError("minmax of an empty array")
    if native.extension is None:
        return plain.minmax(x)
    low, high = native.extension.minmax(x)
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
    x = contiguous(x)
    if not 0 <= log2_bins <= MAX_LOG2_BINS:
        raise ValueError(f"log2_bins must be in [0, {MAX_LOG2_BINS}], not {log2_bins}")
    if abs(exponent) > MAX_EXPONENT:
        raise ValueError(f"exponent must be in [-{MAX_EXPONENT}, {MAX_EXPONENT}], not {exponent}")
    if native.extension is None:
        return plain.histogram(x, exponent, log2_bins)
    counts = np.zeros(2 << log2_bins, np.int64)
    if not native.extension.histogram(x, 2.0 ** (log2_bins - exponent), log2_bins, counts):
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
    x = contiguous(x)
    if x.size == 0:
        return np.zeros(x.shape[-1])
    if native.extension is None:
        return plain.channel_sums(x)
    sums = np.empty(x.shape[-1])
    native.extension.channel_sums(x, sums)
    return sums


def channel_squares(x: Float32, centre: Float64) -> Float64:
    """Sum of squared distances from `centre`, as `channel_sums`.

    Args:
        x: Array [..., channels], float32.
        centre: One number for each channel, float64 [channels].

    Returns:
        Sums of `(x - centre)**2`, float64 [channels]; zeros if `x` is empty.

    Raises:
        ValueError: `centre` has another length than the last axis of `x`.
        TypeError: `x` is not float32.

    Examples:
        >>> channel_squares(np.array([[1, 2], [3, 4]], np.float32), np.array([2.0, 0.0]))
        array([ 2., 20.])
    """
    x, centre = contiguous(x), np.ascontiguousarray(centre, np.float64)
    if centre.shape != x.shape[-1:]:
        raise ValueError(f"centre must have shape {x.shape[-1:]}, not {centre.shape}")
    if x.size == 0:
        return np.zeros(x.shape[-1])
    if native.extension is None:
        return plain.channel_squares(x, centre)
    sums = np.empty(x.shape[-1])
    native.extension.channel_squares(x, centre, sums)
    return sums


def squares(x: Float32, y: Float32) -> tuple[float, float]:
    """Sums of `x**2` and of `(y - x)**2`, in float64.

    The order of the sums depends on the shapes alone (`SQUARE_LANES`).

    Args:
        x: Array of any shape, float32.
        y: Array of the same shape, float32.

    Returns:
        Both sums.

    Raises:
        ValueError: Shapes differ.
        TypeError: An array is not float32.

    Examples:
        >>> squares(np.array([1, 2], np.float32), np.array([1, 4], np.float32))
        (5.0, 4.0)
    """
    x, y = contiguous(x), contiguous(y)
    if x.shape != y.shape:
        raise ValueError(f"shapes differ: {x.shape} and {y.shape}")
    if native.extension is None or x.size == 0:
        return plain.squares(x, y)
    signal, noise = native.extension.squares(x, y)
    return signal, noise


def tails(x: Float32, low: float, high: float, small: float) -> tuple[int, int, int]:
    """Count the values below `low`, above `high`, and of a magnitude below `small`.

    Args:
        x: Array of any shape, float32.
        low: Lower limit. Values are compared with it in float64.
        high: Upper limit.
        small: Limit of magnitudes.

    Returns:
        The three counts. NaN is in none.

    Raises:
        TypeError: `x` is not float32.

    Examples:
        >>> tails(np.array([-3, 0.1, 0.2, 2], np.float32), low=-2, high=1, small=0.15)
        (1, 1, 1)
    """
    x = contiguous(x)
    if native.extension is None or x.size == 0:
        return plain.tails(x, low, high, small)
    below, above, within = native.extension.tails(x, low, high, small)
    return below, above, within
