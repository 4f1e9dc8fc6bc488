"""Functions of float32 that round after each operation; native code gives the same bits.

fused_ops/actor/functions.h has the same operations in the same order.
"""

from __future__ import annotations

import numpy as np

from qgraph.ir.types import Array

F = np.float32
LANES = 16  # of sums over an axis; a kernel's output channels are padded to a multiple of them
LOG2_E, LN2_HIGH, LN2_LOW = F(1.4426950408889634), F(0.693359375), F(-2.12194440e-4)
ROUNDER = F(12582912)  # 1.5 * 2^23: adding it rounds to a whole number


def clipped(x: Array, low: Array | np.float32, high: Array | np.float32) -> Array:
    """x clipped to low..high; NaN stays."""
    x = np.where(x < low, low, x)
    return np.where(x > high, high, x)


def exp(x: Array) -> Array:
    x = clipped(x, F(-104), F(89))
    n = x * LOG2_E + ROUNDER
    whole = np.asarray(n.view(np.int32) - ROUNDER.view(np.int32))
    n = n - ROUNDER
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    y = np.full_like(r, 1 / 5040)
    for factor in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
        y = y * r + F(factor)
    half = whole >> 1
    return np.asarray(y * _power_of_two(half) * _power_of_two(whole - half))


def _power_of_two(n: Array) -> Array:
    # n is arbitrary where x is NaN; the result is NaN all the same.
    return ((n.astype(np.int64) + 127).astype(np.uint32) << 23).astype(np.uint32).view(F)


def tanh(x: Array) -> Array:
    size = abs(x)
    square = x * x
    above = x * ((square + F(105)) * square + F(945))
    near = above / ((F(15) * square + F(420)) * square + F(945))
    far = F(1) - F(2) / (exp(clipped(size + size, F(0), F(40))) + F(1))
    return np.where(size < F(0.6), near, np.where(x < 0, -far, far))


def erf(x: Array) -> Array:
    """1 - p(t) t exp(-x^2), t = 1 / (1 + 0.3275911 |x|), within 5e-7.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
    """
    size = np.where(x < 0, -x, x)
    t = F(1) / (size * F(0.3275911) + F(1))
    y = np.full_like(t, 1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        y = y * t + F(factor)
    above = F(1) - (y * t) * exp(-(size * size))
    return np.asarray(np.where(x < 0, -above, above))


def sigmoid(x: Array) -> Array:
    return F(1) / (exp(-x) + F(1))


def softplus(x: Array) -> Array:
    """max(x, 0) + log(1 + e), e = exp(-|x|): the logarithm as 2 atanh(e / (e + 2))."""
    e = exp(-abs(x))
    s = e / (e + F(2))
    square = s * s
    y = np.full_like(s, 1 / 15)
    for odd in (13, 11, 9, 7, 5, 3, 1):
        y = y * square + F(1 / odd)
    return np.where(x < 0, F(0), x) + (s + s) * y


def total(x: Array) -> Array:
    """Sums over the last axis, which is kept: lane i adds i, i + 16, ..., then halves are added."""
    size = x.shape[-1]
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -size % LANES)])
    lanes = np.zeros((*x.shape[:-1], LANES), F)
    for at in range(0, x.shape[-1], LANES):
        lanes = lanes + x[..., at : at + LANES]
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes


def mean(x: Array) -> Array:
    return total(x) / F(x.shape[-1])
