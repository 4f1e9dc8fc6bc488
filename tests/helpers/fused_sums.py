"""Sums of products as the native convolution computes them: fused, in blocks, in a fixed order."""

from __future__ import annotations

import numpy as np

from qgraph.ir.ops.windows import taps
from qgraph.kernels.plain import Float32, Float64
from qgraph.ops.attribute_types import Pair

BLOCK = 256  # kConvDepth in fused_ops/core/conv.h


def fused(a: Float32, b: Float32, c: Float32) -> Float32:
    """`a * b + c`, rounded once.

    The product is exact in float64. Its sum with c is rounded to odd, so that rounding it again to
    float32 gives the correct result.
    """
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    total: Float64 = np.asarray(product + addend)
    shifted = total - product
    error = (product - (total - shifted)) + (addend - shifted)
    bits = total.view(np.int64)
    away = (error > 0) == (total > 0)
    odd = np.where((error != 0) & (bits & 1 == 0), bits + np.where(away, 1, -1), bits)
    return odd.view(np.float64).astype(np.float32)


def convolved(
    x: Float32, w: Float32, strides: Pair, dilations: Pair, pads: tuple[int, ...]
) -> Float32:
    """The convolution of `kernels.conv2d`, to the bit."""
    kh, kw, c, outputs = w.shape
    padded = np.pad(x, ((0, 0), pads[:2], pads[2:], (0, 0)))
    groups = x.shape[3] // c
    results = []
    for images, filters in zip(
        np.split(padded, groups, axis=3), np.split(w, groups, axis=3), strict=True
    ):
        views = [view for *_, view in taps(images, (kh, kw), strides, dilations)]
        patches = np.concatenate(views, axis=-1)
        matrix = filters.reshape(kh * kw * c, -1)
        total = np.zeros((*patches.shape[:3], outputs // groups), np.float32)
        for first in range(0, len(matrix), BLOCK):
            block = np.zeros_like(total)
            for k in range(first, min(first + BLOCK, len(matrix))):
                block = fused(patches[..., k : k + 1], matrix[k], block)
            total += block
        results.append(total)
    return np.concatenate(results, axis=3)
