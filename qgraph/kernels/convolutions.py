"""Convolutions of float32 images."""

from __future__ import annotations

import numpy as np

from qgraph.kernels import native, plain
from qgraph.kernels.arrays import contiguous
from qgraph.kernels.plain import Float32
from qgraph.ops.attribute_types import Pair


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
    x, w = contiguous(x), contiguous(w)
    y = np.empty(plain.conv_shape(x, w, strides, dilations, pads), np.float32)
    if native.extension is None or y.size == 0 or w.size == 0:
        return plain.conv2d(x, w, strides, dilations, pads)
    native.extension.conv2d(x, w, strides, dilations, (pads[0], pads[2]), y)
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
    x, w = contiguous(x), contiguous(w)
    y = np.zeros(plain.depthwise_shape(x, w, strides, dilations, pads), np.float32)
    if native.extension is None or y.size == 0 or w.size == 0:
        return plain.depthwise_conv2d(x, w, strides, dilations, pads)
    native.extension.depthwise_conv2d(x, w, strides, dilations, (pads[0], pads[2]), y)
    return y
