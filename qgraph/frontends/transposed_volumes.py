"""3-D transposed convolutions: a 3-D convolution to phases, which are then arranged in space.

The phases of height and width are arranged in each plane as those of images (`transposed.py`); the
phases of depth are the last channels, and become planes.
"""

from __future__ import annotations

import math

import numpy as np

from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.site import AnySite
from qgraph.frontends.transposed import check_filter_size, cut, laid_out
from qgraph.frontends.volumes import Planes, Triple, VolumePads, convolution
from qgraph.ir.types import Array

ONES: Triple = (1, 1, 1)


def transposed_convolution(
    site: AnySite,
    x: str,
    w: Array,
    strides: Triple,
    pads: VolumePads,
    extra: Triple,
    bias: Array | None = None,
) -> Planes:
    """A transposed convolution of a volume `x` with weights [in, out, depth, height, width].

    pads: what is cut off at each end; extra: what is added at the ends.
    """
    kernel, out = w.shape[2:], w.shape[1]
    taps: Triple = tuple(
        -(-(k + max(e, 0)) // s) for k, e, s in zip(kernel, extra, strides, strict=True)
    )
    spare = [
        t * s - k - e + p[1]
        for t, s, k, e, p in zip(taps, strides, kernel, extra, pads, strict=True)
    ]
    check_filter_size((*w.shape[:2], *(t * s for t, s in zip(taps, strides, strict=True))), w)
    front, rows, columns = ((t - 1, t - 1) for t in taps)
    filters = _phases(w, strides, taps)
    made, (_, count, *_) = convolution(site, x, filters, ONES, ONES, (front, rows, columns))
    if bias is not None:
        each = site.const(np.tile(bias, math.prod(strides)), "bias")
        made = site.helper("biased", "bias_add", made, each)
    planes = laid_out(site, made, strides[1:])
    planes = cut(site, planes, pads[1:], spare[1:])
    shape = site.builder.graph.types[planes].shape
    if shape is None or None in shape[1:3]:
        raise Inexpressible
    height, width = (int(size or 0) for size in shape[1:3])
    if strides[0] > 1:
        split = site.helper(
            "depths", "reshape", planes, shape=(-1, height * width, strides[0], out)
        )
        planes = site.helper("planes", "transpose", split, perm=(0, 2, 1, 3))
    depth = count * strides[0]
    if pads[0][0] or spare[0]:
        stack = site.helper("stack", "reshape", planes, shape=(-1, depth, height * width, out))
        planes = cut(site, stack, (pads[0], (0, 0)), [spare[0], 0])
        depth -= pads[0][0] + spare[0]
    return planes, (-1, depth, height, width, out)


def _phases(w: Array, strides: Triple, taps: Triple) -> Array:
    """[in, out, d, h, w] -> [taps of d, of h, of w, in, phases of h, of w, of d, out]"""
    channels, out, depth, height, width = w.shape
    (sd, sh, sw), (td, th, tw) = strides, taps
    full = np.zeros((channels, out, td * sd, th * sh, tw * sw), w.dtype)
    full[:, :, :depth, :height, :width] = w
    split = full.reshape(channels, out, td, sd, th, sh, tw, sw)[:, :, ::-1, :, ::-1, :, ::-1]
    made = split.transpose(2, 4, 6, 0, 5, 7, 3, 1)
    return np.ascontiguousarray(made.reshape(td, th, tw, channels, sh * sw * sd * out))
