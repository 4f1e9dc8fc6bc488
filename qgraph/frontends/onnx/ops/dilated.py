"""Pools with dilations: the taps of each window are picked side by side, then pooled without."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import OnnxSite, Result
from qgraph.frontends.onnx.ops.layout import NONE, back, image, window, with_ceiling
from qgraph.frontends.onnx.ops.slicing import MAX_INDICES
from qgraph.ir.ops.windows import Padding, PaddingRule, out_size
from qgraph.ir.types import Array, Codes
from qgraph.ops.attribute_types import Pair


@dataclass(frozen=True)
class _Taps:
    """The positions of one axis that each window covers, [windows, taps]; some are padding.

    pads: the padding that attributes give, without that of an incomplete last window.
    """

    places: Codes
    size: int
    pads: Pair

    @property
    def inside(self) -> Array:
        return (self.places >= 0) & (self.places < self.size)

    def share(self, include_pads: bool) -> Array:
        """The part of the taps of each window that counts in a mean."""
        before, after = self.pads if include_pads else (0, 0)
        counts = (self.places >= -before) & (self.places < self.size + after)
        result: Array = counts.mean(1)
        return result

    def within(self) -> tuple[int, ...]:
        """The positions, with another one of the same window in place of padding."""
        inside = self.inside
        first = np.take_along_axis(self.places, inside.argmax(1)[:, None], 1)
        return tuple(np.where(inside, self.places, first).reshape(-1).tolist())

    def from_start(self, before: int) -> tuple[int, ...]:
        """The positions in an image that has `before` zeros in front."""
        return tuple((self.places + before).reshape(-1).tolist())


def dilated_max_pool(site: OnnxSite, kernel: Pair, strides: Pair, dilations: Pair) -> Result:
    """The largest of the taps, along one axis after the other."""
    x, (taps, _) = image(site), _taps(site, kernel, strides, dilations)
    for i, (axis, of_axis) in enumerate(zip(("height", "width"), taps, strict=True)):
        ksize = (kernel[0], 1) if i == 0 else (1, kernel[1])
        x = site.helper(f"{axis}/taps", "take", x, axis=i + 1, indices=of_axis.within())
        attrs = {"ksize": ksize, "strides": ksize, "padding": PaddingRule.VALID}
        x = site.helper(axis, "max_pool", x, **attrs)
    return back(site, x, site.rank())


def dilated_average_pool(site: OnnxSite, kernel: Pair, strides: Pair, dilations: Pair) -> Result:
    """The mean of the taps; padding adds zeros, and a factor for each window leaves them out."""
    x, (taps, pads) = image(site), _taps(site, kernel, strides, dilations)
    if pads != NONE:
        x = site.helper("padded", "pad", x, paddings=((0, 0), *pads, (0, 0)), value=0)
    for i, of_axis in enumerate(taps):
        indices = of_axis.from_start(pads[i][0])
        x = site.helper(f"taps{i}", "take", x, axis=i + 1, indices=indices)
    attrs = {"ksize": kernel, "strides": kernel, "padding": PaddingRule.VALID}
    x = site.helper("mean", "avg_pool", x, **attrs)
    included = site.node.flag("count_include_pad")
    factor = 1 / np.outer(*(of_axis.share(included) for of_axis in taps))
    if (factor != 1).any():
        kind = np.dtype(site.type().dtype)
        counts = site.const(factor[None, :, :, None].astype(kind), "counts")
        x = site.helper("counted", "mul", x, counts)
    return back(site, x, site.rank())


def _taps(
    site: OnnxSite, kernel: Pair, strides: Pair, dilations: Pair
) -> tuple[tuple[_Taps, _Taps], tuple[Pair, Pair]]:
    """The taps of both axes, and the padding that they reach into."""
    given = _numbers(window(site, kernel, strides, dilations, numbers=True))
    spans = ((kernel[0] - 1) * dilations[0] + 1, (kernel[1] - 1) * dilations[1] + 1)
    pads = _numbers(with_ceiling(site, given, spans, strides))
    sizes = (site.builder.graph.types[image(site)].shape or ())[1:3]

    def along(i: int) -> _Taps:
        size = sizes[i]
        count = out_size(size, kernel[i], strides[i], dilations[i], pads[i])
        if size is None or count is None or count * kernel[i] > MAX_INDICES:
            raise Inexpressible
        starts = np.arange(count) * strides[i] - pads[i][0]
        made = _Taps(starts[:, None] + np.arange(kernel[i]) * dilations[i], size, given[i])
        if not made.inside.any(1).all():  # a window of padding only
            raise Inexpressible
        return made

    return (along(0), along(1)), pads


def _numbers(padding: Padding) -> tuple[Pair, Pair]:
    return NONE if isinstance(padding, PaddingRule) else padding
