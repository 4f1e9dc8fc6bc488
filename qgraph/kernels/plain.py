"""The kernels in plain numpy, with the same arguments and bit-identical results.

They take C-contiguous float32 arrays and only check shapes and NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qgraph.kernels.rounding import round_numbers
from qgraph.ops.attribute_types import Pair

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Exponents = int | npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Stage:
    """Steps after a layer: ``min(clip(quantize(x) + bias, low, high), ceiling)``.

    quantizer: exponent, lo, hi and rounding of `quantize`. bias and ceiling: float32, one number
    for each channel, the last axis. All three are optional.
    """

    quantizer: tuple[int, int, int, str] | None = None
    bias: Float32 | None = None
    low: float = -math.inf
    high: float = math.inf
    ceiling: Float32 | None = None

    def fits(self, x: Float32) -> bool:
        """Whether the ceiling has a number for each channel of `x`, and does not broadcast."""
        return self.ceiling is None or self.ceiling.shape == x.shape[-1:]


# The order of sums, as in fused_ops/core/quantize.h.
LANES, LEAF_ROWS, LEAVES, BLOCKS = 32, 32, 32, 32
SQUARE_LANES = 32  # as in fused_ops/core/channel_sums.h


def minmax(x: Float32) -> tuple[float, float]:
    """Do what `kernels.minmax` does."""
    return float(np.min(x)) + 0.0, float(np.max(x)) + 0.0


def histogram(x: Float32, exponent: int, log2_bins: int) -> Int64:
    """Do what `kernels.histogram` does."""
    if np.isnan(x).any():
        raise ValueError("histogram of an array with NaN")
    half = 1 << log2_bins
    scaled = x.astype(np.float64).ravel() * 2.0 ** (log2_bins - exponent)
    index = np.clip(np.floor(scaled), -half, half - 1).astype(np.int64) + half
    index = index[x.ravel() != 0]
    return np.bincount(index, minlength=2 * half).astype(np.int64, copy=False)


def channel_sums(x: Float32) -> Float64:
    """Do what `kernels.channel_sums` does."""
    rows = x.reshape(-1, x.shape[-1])
    if x.shape[-1] == 1:  # numpy would add up pairs
        return np.asarray(np.cumsum(rows, axis=0, dtype=np.float64)[-1])
    return np.asarray(np.add.reduce(rows, axis=0, dtype=np.float64))


def channel_squares(x: Float32, centre: Float64) -> Float64:
    """Do what `kernels.channel_squares` does."""
    rows = np.square(x.reshape(-1, x.shape[-1]) - centre)
    if x.shape[-1] == 1:
        return np.asarray(np.cumsum(rows, axis=0)[-1])
    return np.asarray(np.add.reduce(rows, axis=0))


def squares(x: Float32, y: Float32) -> tuple[float, float]:
    """Do what `kernels.squares` does."""
    exact = x.astype(np.float64).ravel()
    signal, noise = (_sum_by_lanes(np.square(v)) for v in (exact, y.ravel() - exact))
    return signal, noise


def _sum_by_lanes(values: Float64) -> float:
    rows = np.zeros((-(-values.size // SQUARE_LANES), SQUARE_LANES))
    rows.ravel()[: values.size] = values
    return float(np.cumsum(np.add.reduce(rows, axis=0))[-1])


def tails(x: Float32, low: float, high: float, small: float) -> tuple[int, int, int]:
    """Do what `kernels.tails` does."""
    values = x.astype(np.float64)
    counted = (values < low, values > high, np.abs(values) < small)
    below, above, within = (int(np.count_nonzero(c)) for c in counted)
    return below, above, within


def quantize(x: Float32, f: Exponents, lo: int, hi: int, rounding: str = "half_even") -> Float32:
    """Do what `kernels.quantize` does."""
    f = np.asarray(f)
    whole = round_numbers(np.ldexp(x.astype(np.float64), f), rounding)
    value = np.ldexp(np.clip(whole, np.float32(lo), np.float32(hi)), -f) + 0.0
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(np.float32)


def stage(x: Float32, stage: Stage) -> tuple[Float32, tuple[float, float]]:
    """Do what `kernels.stage` does."""
    with np.errstate(all="ignore"):
        y = x if stage.quantizer is None else quantize(x, *stage.quantizer)
        y = y if stage.bias is None else y + stage.bias
        y = np.where(y < stage.low, np.float32(stage.low), y)
        y = np.where(y > stage.high, np.float32(stage.high), y)
        y = y if stage.ceiling is None else np.where(y > stage.ceiling, stage.ceiling, y)
    return y, minmax(y)


def quantize_gradients(
    x: Float32, g: Float32, f: Exponents, lo: int, hi: int, rounding: str = "half_even"
) -> tuple[Float32, Float64]:
    """Do what `kernels.quantize_gradients` does."""
    f = np.asarray(f)
    if x.size == 0:
        return np.empty_like(x), np.zeros(f.shape)
    low, high = np.float32(lo), np.float32(hi)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        scaled = np.ldexp(x, f)
        whole = round_numbers(np.ldexp(x.astype(np.float64), f), rounding).astype(np.float32)
        below, above = whole < low, whole > high
        slope = np.where(below, low, np.where(above, high, whole - scaled))
        products = g.astype(np.float64) * slope
        sums = _ordered_sum(products.reshape(-1, f.size)).reshape(f.shape)
        gradient = np.ldexp(np.log(2.0), -f) * sums + 0.0
    return np.where(below | above, np.float32(0), g), np.asarray(gradient)


def _ordered_sum(products: Float64) -> Float64:
    """Column sums of ``products``, in the order of the kernels (docs/kernels.md)."""
    one = products.shape[1] == 1
    columns = LANES if one else products.shape[1]
    rows = np.zeros((-(-products.size // columns), columns))
    rows.ravel()[: products.size] = products.ravel()
    for size in (LEAF_ROWS, LEAVES, BLOCKS):
        rows = _sums_of(rows, size)
    sums: Float64 = _sums_of(rows, len(rows))[0]
    while one and sums.size > 1:
        sums = sums[: sums.size // 2] + sums[sums.size // 2 :]
    return sums


def _sums_of(rows: Float64, size: int) -> Float64:
    """The sum of each block of `size` rows, one row after the other."""
    groups = np.zeros((-(-len(rows) // size), size, rows.shape[1]))
    groups.reshape(-1, rows.shape[1])[: len(rows)] = rows
    sums = np.zeros((len(groups), rows.shape[1]))
    for i in range(size):
        sums += groups[:, i]
    return sums


def round_significand(x: Float32, bits: int) -> Float32:
    """Do what `kernels.round_significand` does."""
    power = (x.view(np.uint32) & np.uint32(0x7F800000)).view(np.float32)
    power = np.maximum(power, np.float32(2.0**-14))
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = np.rint(x / power * np.float32(2.0**bits)) * (power * np.float32(2.0**-bits))
    end = np.where(np.isnan(x), x, np.copysign(np.float32(np.inf), x))
    return np.where(np.abs(rounded) < 2.0**16, rounded, end).astype(np.float32)


def conv2d(
    x: Float32, w: Float32, strides: Pair, dilations: Pair, pads: tuple[int, int, int, int]
) -> Float32:
    """Do what `kernels.conv2d` does, in an order of sums that BLAS chooses."""
    n, oh, ow, outputs = conv_shape(x, w, strides, dilations, pads)
    kh, kw, c, _ = w.shape
    top, bottom, left, right = pads
    if any(pads):
        x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    y = np.empty((n, oh, ow, outputs), np.float32)
    groups = x.shape[3] // c
    for group in range(groups):
        inputs = x[..., group * c : (group + 1) * c]
        first = group * (outputs // groups)
        filters = w[..., first : first + outputs // groups].reshape(kh * kw * c, -1)
        for image in range(n):  # one image at a time, so that its columns stay in cache
            columns = np.concatenate(
                [
                    inputs[image, i : i + (oh - 1) * strides[0] + 1 : strides[0],
                           j : j + (ow - 1) * strides[1] + 1 : strides[1]]
                    for i in range(0, kh * dilations[0], dilations[0])
                    for j in range(0, kw * dilations[1], dilations[1])
                ],
                axis=-1,
            )  # fmt: skip
            y[image, ..., first : first + outputs // groups] = np.matmul(columns, filters)
    return y


def depthwise_conv2d(
    x: Float32,
    w: Float32,
    strides: Pair,
    dilations: Pair,
    pads: tuple[int, int, int, int],
) -> Float32:
    """Do what `kernels.depthwise_conv2d` does."""
    n, oh, ow, c = depthwise_shape(x, w, strides, dilations, pads)
    top, bottom, left, right = pads
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    y = np.zeros((n, oh, ow, c), np.float32)
    for kh in range(w.shape[0]):
        rows = slice(kh * dilations[0], kh * dilations[0] + (oh - 1) * strides[0] + 1, strides[0])
        for kw in range(w.shape[1]):
            first = kw * dilations[1]
            y += padded[:, rows, first : first + (ow - 1) * strides[1] + 1 : strides[1]] * w[kh, kw]
    return y


def conv_shape(
    x: Float32, w: Float32, strides: Pair, dilations: Pair, pads: tuple[int, int, int, int]
) -> tuple[int, int, int, int]:
    if x.ndim != 4 or w.ndim != 4 or not w.shape[2] or x.shape[3] % w.shape[2]:
        raise ValueError(f"expected x [n, h, w, c] and w [kh, kw, c, o], not {x.shape}, {w.shape}")
    if x.shape[3] and w.shape[3] % (x.shape[3] // w.shape[2]):
        raise ValueError(f"{w.shape[3]} outputs do not fit {x.shape[3] // w.shape[2]} groups")
    height, width = _out_sizes(x, w, strides, dilations, pads)
    return x.shape[0], height, width, w.shape[3]


def depthwise_shape(
    x: Float32, w: Float32, strides: Pair, dilations: Pair, pads: tuple[int, int, int, int]
) -> tuple[int, int, int, int]:
    if x.ndim != 4 or w.ndim != 3 or x.shape[3] != w.shape[2]:
        raise ValueError(f"expected x [n, h, w, c] and w [kh, kw, c], not {x.shape} and {w.shape}")
    height, width = _out_sizes(x, w, strides, dilations, pads)
    return x.shape[0], height, width, x.shape[3]


def _out_sizes(
    x: Float32, w: Float32, strides: Pair, dilations: Pair, pads: tuple[int, int, int, int]
) -> Pair:
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
    return sizes[0], sizes[1]
