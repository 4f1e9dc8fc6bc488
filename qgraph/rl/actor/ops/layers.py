"""Layers: a product with a kernel, a bias, an activation.

The input of a kernel with integer codes is quantized, each sample by its own range:

    low = min(x, 0), high = max(x, 0), range = high - low
    zero = rint(-low * 255 / range), code = rint(x * 255 / range) + zero, clipped to 0..255
    y = (sum code * w - zero * sum w) * (range / 255 * scale of w) + bias

rint rounds halves to even. 0 has a code, so padding is exact. A range below 2^-100 counts as 0. If
the range overflows or the input has NaN, the result is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.ir.types import Array
from qgraph.ops.attribute_types import Pads, Pair
from qgraph.ops.attributes import attribute
from qgraph.ops.windows import NO_PADS, ONE, slid
from qgraph.rl.actor.ops.activations import ActivationAttrs
from qgraph.rl.actor.ops.arithmetic import F
from qgraph.rl.actor.ops.base import (
    ActorOp,
    AnyActorOp,
    ChannelRule,
    Shape,
    StepWeight,
    check_rank,
    check_shape,
)

SMALLEST = F(2.0**-100)  # a range of an input, or a largest weight, below this counts as 0
FLOAT32_MAX = np.finfo(F).max
PARTS = 4  # partial sums of float products: values 0, 4, 8, ... of a segment; 1, 5, 9, ...; ...


@dataclass(frozen=True)
class ActorConvAttrs(ActivationAttrs):
    """A convolution: a window and an activation."""

    strides: Pair = attribute("positions from one window to the next", low=1, default=ONE)
    pads: Pads = attribute("zeros around the image", low=0, default=NO_PADS)


# -- shapes -------------------------------------------------------------------------------------


def _dense_shape(
    attrs: ActivationAttrs, inputs: Sequence[Shape], weights: Sequence[Shape]
) -> Shape:
    (x,), (kernel, bias) = inputs, weights
    check_rank(x, 1)
    check_rank(kernel, 2)
    check_shape((x[0], kernel[1]), kernel, "the kernel")
    check_shape((kernel[1],), bias, "the bias")
    return bias


def _conv_shape(attrs: ActorConvAttrs, inputs: Sequence[Shape], weights: Sequence[Shape]) -> Shape:
    (x,), (kernel, bias) = inputs, weights
    check_rank(x, 3)
    check_rank(kernel, 4)
    check_shape((*kernel[:2], x[2], kernel[3]), kernel, "the kernel")
    check_shape((kernel[3],), bias, "the bias")
    return (*slid(x, kernel, attrs.strides, attrs.pads), kernel[3])


# -- arithmetic ---------------------------------------------------------------------------------


def _dense(attrs: ActivationAttrs, inputs: Sequence[Array], weights: Sequence[StepWeight]) -> Array:
    kernel, bias = weights
    return attrs.applied(product(inputs[0], kernel) + bias.values)


def _conv(attrs: ActorConvAttrs, inputs: Sequence[Array], weights: Sequence[StepWeight]) -> Array:
    kernel, bias = weights
    return attrs.applied(product(inputs[0], kernel, attrs) + bias.values)


def product(x: Array, kernel: StepWeight, window: ActorConvAttrs | None = None) -> Array:
    """x [n, k] times a kernel, or the windows of x [n, h, w, c] times it; without bias."""
    if kernel.scale is None:
        return _float_sums(_rows(x, kernel, window, F(0)), kernel.values)
    delta, zero, codes = quantize_input(x.reshape(len(x), -1))
    each = (-1,) + (1,) * (x.ndim - 1)
    rows = _rows(codes.reshape(x.shape) - zero.reshape(each), kernel, window, 0)
    w = kernel.values.reshape(-1, kernel.values.shape[-1])
    sums = rows.reshape(*rows.shape[:-2], -1).astype(np.float64) @ w
    return np.asarray(sums.astype(F) * (delta.reshape(each) * kernel.scale))


def quantize_input(x: Array) -> tuple[Array, Array, Array]:
    """delta [n], zero [n], codes [n, k] of x [n, k]."""
    low, high = np.fmin.reduce(x, 1, initial=F(0)), np.fmax.reduce(x, 1, initial=F(0))
    span = high - low
    there = (span >= SMALLEST) & (span <= FLOAT32_MAX)
    inverse = np.divide(F(255), span, out=np.zeros_like(span), where=there)
    delta = np.where(there, span / F(255), F(0))
    delta[(span > FLOAT32_MAX) | np.isnan(x).any(1)] = np.nan
    zero = np.clip(np.rint(-low * inverse), 0, 255)
    codes = np.clip(np.rint(np.nan_to_num(x) * inverse[:, None]) + zero[:, None], 0, 255)
    return delta, zero.astype(np.int64), codes.astype(np.int64)


def _rows(
    x: Array, kernel: StepWeight, window: ActorConvAttrs | None, fill: np.float32 | int
) -> Array:
    """[..., segments, values of a segment]"""
    if window is None:
        return x[:, None, :]
    segments, length = kernel.values.shape[:2]
    found = windows(x, (segments, length // x.shape[-1]), window.strides, window.pads, fill)
    return np.moveaxis(found, 3, 5).reshape(*found.shape[:3], segments, -1)


def windows(x: Array, ksize: Pair, strides: Pair, pads: Pads, fill: np.float32 | int) -> Array:
    """[n, h, w, c, ksize...] of images [n, h, w, c]."""
    x = np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=fill)
    found = np.lib.stride_tricks.sliding_window_view(x, ksize, (1, 2))
    return found[:, :: strides[0], :: strides[1]]


def _float_sums(rows: Array, w: Array) -> Array:
    """Products are added to the partial sums, segment by segment; then these are added."""
    sums = np.zeros((PARTS, *rows.shape[:-2], w.shape[-1]), F)
    for segment in range(w.shape[0]):
        for k in range(w.shape[1]):
            sums[k % PARTS] += rows[..., segment, k, None] * w[segment, k]
    return np.asarray((sums[0] + sums[1]) + (sums[2] + sums[3]))


OPS: tuple[AnyActorOp, ...] = (
    ActorOp(
        "dense",
        0,
        "x [k] times a kernel [k, m], plus a bias [m]",
        ("x",),
        ("kernel", "bias"),
        ActivationAttrs,
        ChannelRule.LAYER,
        _dense_shape,
        _dense,
    ),
    ActorOp(
        "conv",
        1,
        "a convolution with a kernel [kh, kw, c, m], plus a bias [m]",
        ("x",),
        ("kernel", "bias"),
        ActorConvAttrs,
        ChannelRule.LAYER,
        _conv_shape,
        _conv,
    ),
)
