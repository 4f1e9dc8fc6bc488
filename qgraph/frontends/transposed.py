"""Transposed convolutions as a convolution whose channels are then arranged in space.

With stride s, result `h * s + i` depends only on every s-th tap of the filter. So each of the s²
phases is a separate convolution with a small filter; together they are one convolution to s² times
the channels, and `depth_to_space` interleaves the phases. Then the padding is cut off.
"""

from __future__ import annotations

import math

import numpy as np

from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.site import AnySite
from qgraph.ir.ops.windows import Padding, PaddingRule
from qgraph.ir.types import Array
from qgraph.ops.attribute_types import Pair

MAX_FILTER = 1 << 22


def taps_of(kernel: Pair, extra: Pair, strides: Pair) -> Pair:
    """The size of the filter of a phase."""
    h, w = (-(-(k + max(e, 0)) // s) for k, e, s in zip(kernel, extra, strides, strict=True))
    return h, w


def around(taps: Pair) -> Padding:
    """The padding of the convolution to phases."""
    height, width = ((t - 1, t - 1) for t in taps)
    return (height, width) if any((*height, *width)) else PaddingRule.VALID


def check_filter_size(shape: tuple[int, ...], weights: Array) -> None:
    """Refuse strides, dilations or padding far wider than the filter, which no real network has."""
    if math.prod(shape) > max(MAX_FILTER, 8 * weights.size):
        raise Inexpressible


def phases(w: Array, strides: Pair, taps: Pair) -> Array:
    """[in, out, h, w] -> [taps, taps, in, phases * out]"""
    channels, out, height, width = w.shape
    (sh, sw), (th, tw) = strides, taps
    full = np.zeros((channels, out, th * sh, tw * sw), w.dtype)
    full[:, :, :height, :width] = w
    split = full.reshape(channels, out, th, sh, tw, sw)[:, :, ::-1, :, ::-1]
    made = split.transpose(2, 4, 0, 3, 5, 1).reshape(th, tw, channels, sh * sw * out)
    return np.ascontiguousarray(made)


def laid_out(site: AnySite, phases: str, strides: Pair) -> str:
    """[n, h, w, phases * c] -> [n, h * sh, w * sw, c]"""
    sh, sw = strides
    if sh == sw:
        return phases if sh == 1 else site.helper("whole", "depth_to_space", phases, block=sh)
    shape = site.builder.graph.types[phases].shape or ()
    if None in shape[1:]:
        raise Inexpressible
    _, h, w, c = (d or 0 for d in shape)
    out = c // (sh * sw)
    if sh == 1:  # adjacent in memory already
        return site.helper("whole", "reshape", phases, shape=(-1, h, w * sw, out))
    split = site.helper("split", "reshape", phases, shape=(-1, w, sh, sw * out))
    turned = site.helper("turned", "transpose", split, perm=(0, 2, 1, 3))
    return site.helper("whole", "reshape", turned, shape=(-1, h * sh, w * sw, out))


def cut(site: AnySite, whole: str, pads: tuple[Pair, ...], spare: list[int]) -> str:
    """The part of an image between `pads` at its starts and `spare` elements at its ends."""
    if min(spare) < 0 or min(min(p) for p in pads) < 0:
        raise Inexpressible
    begin = (None, *(p[0] or None for p in pads), None)
    end = (None, *(-s if s else None for s in spare), None)
    if not any(begin) and not any(end):
        return whole
    return site.helper("cut", "slice", whole, begin=begin, end=end, strides=(1, 1, 1, 1))
