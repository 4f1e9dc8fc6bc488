"""Ops of windows that slide over images: sums of products, and the largest element.

Images are [batch, height, width, channels] of any dtype, pads are ((top, bottom), (left, right)).
"""

from __future__ import annotations

import numpy as np

from qgraph.ir.ops.windows import padded, taps
from qgraph.ir.types import Array
from qgraph.ops.attribute_types import Pads, Pair


def convolved(x: Array, w: Array, strides: Pair, dilations: Pair, pads: Pads) -> Array:
    """A convolution with filters [height, width, channels of a group, outputs]."""
    x = padded(x, pads)
    groups = x.shape[3] // w.shape[2]
    if groups == 1:
        return _group(x, w, strides, dilations)
    parts = zip(np.split(x, groups, axis=3), np.split(w, groups, axis=3), strict=True)
    return np.concatenate([_group(xs, ws, strides, dilations) for xs, ws in parts], axis=3)


def _group(x: Array, w: Array, strides: Pair, dilations: Pair) -> Array:
    kh, kw, c, out = w.shape
    if (kh, kw) == (1, 1):
        x = x[:, :: strides[0], :: strides[1]]
        # One large product: numpy would compute one for each row of the image.
        product: Array = np.matmul(x.reshape(-1, c), w[0, 0])
        return product.reshape(*x.shape[:3], out)
    views = [v for _, _, v in taps(x, (kh, kw), strides, dilations)]
    result = np.empty((*views[0].shape[:3], out), x.dtype)
    for image in range(x.shape[0]):  # one image at a time, so that its columns stay in cache
        columns = np.concatenate([v[image] for v in views], axis=-1)
        result[image] = np.matmul(columns, w.reshape(kh * kw * c, out))
    return result


def convolved_by_channel(x: Array, w: Array, strides: Pair, dilations: Pair, pads: Pads) -> Array:
    """A depthwise convolution with filters [height, width, channels, outputs of a channel]."""
    kh, kw, c, multiplier = w.shape
    windows = taps(padded(x, pads), (kh, kw), strides, dilations)
    terms = (view[..., None] * w[i, j] for i, j, view in windows)
    result = next(terms)
    for term in terms:
        np.add(result, term, out=result)
    return np.reshape(result, (*result.shape[:3], c * multiplier))


def largest(x: Array, kernel: Pair, strides: Pair, pads: Pads) -> Array:
    """The largest element under each window; padding is never the largest."""
    views = (v for *_, v in taps(padded(x, pads, lowest(x.dtype)), kernel, strides, (1, 1)))
    result = next(views).copy()
    for view in views:
        np.maximum(result, view, out=result)
    return result


def lowest(dtype: np.dtype[np.generic]) -> float:
    """The maximum of an empty set."""
    if dtype.kind == "f":
        return -np.inf
    return False if dtype.kind == "b" else np.iinfo(dtype.name).min
