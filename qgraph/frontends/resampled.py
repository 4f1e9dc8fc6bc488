"""Images of another size, as ops that have an integer form.

Each row of a result is a weighted sum of neighbouring rows (`Taps`). Nearest neighbours are picked.
Interpolation repeats after some results, like every 3 of 2 elements at a ratio of 1.5: then it is
one depthwise convolution of copies of the image, one for each position in a period, and
`depth_to_space` puts the positions together. Other ratios are products with a constant matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.site import AnySite
from qgraph.frontends.transposed import cut, laid_out
from qgraph.ir.ops.windows import PaddingRule
from qgraph.ir.types import Array, Codes

Float64 = npt.NDArray[np.float64]
CLOSE = 1e-7  # positions are computed in float64
MAX_PERIOD = 64  # positions of a period in both axes, which are copies of the image
MAX_WINDOW = 36  # taps of a convolution, of which interpolation uses 4
MAX_MATRIX = 1 << 22
MAX_SIDE = 1 << 16


@dataclass(frozen=True)
class Taps:
    """Result i is the sum over k of `weights[i, k]` * the element at `first[i] + k`.

    Positions outside of 0 to `size` - 1 are those of the nearest element.
    """

    size: int
    first: Codes
    weights: Float64

    @property
    def out(self) -> int:
        return len(self.first)

    @property
    def places(self) -> Codes:
        """The position of each tap [results, taps]."""
        count = self.weights.shape[1]
        found: Codes = np.clip(self.first[:, None] + np.arange(count), 0, self.size - 1)
        return found

    def matrix(self) -> Float64:
        """[results, elements]"""
        made = np.zeros((self.out, self.size))
        np.add.at(made, (np.arange(self.out)[:, None], self.places), self.weights)
        return made


def nearest(size: int, indices: Codes) -> Taps:
    return Taps(size, indices, np.ones((len(indices), 1)))


@dataclass(frozen=True)
class InterpolationKernel:
    """The weight of an element by its distance from a position, 0 from `reach` on."""

    reach: int
    weight: Callable[[Float64], Float64]


LINEAR = InterpolationKernel(1, lambda distance: np.maximum(1 - distance, 0))


def cubic(a: float) -> InterpolationKernel:
    """Keys' polynomials with slope `a` at distance 1."""

    def weight(distance: Float64) -> Float64:
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        result: Float64 = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
        return result

    return InterpolationKernel(2, weight)


def interpolated(
    size: int, x: Float64, kernel: InterpolationKernel, *, stretch: float = 1.0, steps: int = 0
) -> Taps:
    """Elements around each position `x`, weighed by a kernel.

    stretch: of the kernel, against aliases in smaller images. steps: the number of positions
    between two elements that have weights of their own; 0 for all.
    """
    near: Codes = np.floor(x + CLOSE).astype(np.int64)
    part = np.clip(x - near, 0, 1)
    part = np.rint(part * steps) / steps if steps else part
    start = math.floor(-kernel.reach * stretch) + 1
    distance = np.abs(np.arange(start, 2 - start) - part[:, None]) / stretch
    weights = kernel.weight(distance)
    return Taps(size, near + start, weights / weights.sum(axis=1, keepdims=True))


def only_inside(taps: Taps) -> Taps:
    """The same without elements outside of the image; the weights of the others add up to 1."""
    places = taps.first[:, None] + np.arange(taps.weights.shape[1])
    weights = np.where((places >= 0) & (places < taps.size), taps.weights, 0)
    return Taps(taps.size, taps.first, weights / weights.sum(axis=1, keepdims=True))


def resampled(site: AnySite, x: str, height: Taps, width: Taps) -> str:
    """An image [n, h, w, c] with both axes resampled, as a helper of the site."""
    axes = {axis: taps for axis, taps in ((1, height), (2, width)) if not _is_identity(taps)}
    picked = {axis: taps for axis, taps in axes.items() if taps.weights.shape[1] == 1}
    for axis, taps in picked.items():
        indices = tuple(taps.places[:, 0].tolist())
        x = site.helper(f"axis{axis}", "take", x, axis=axis, indices=indices)
    weighted = {axis: taps for axis, taps in axes.items() if axis not in picked}
    if not weighted:
        return x
    periods = [_period(weighted[axis]) if axis in weighted else WHOLE for axis in (1, 2)]
    if None not in periods:
        made = _filtered(site, x, [p for p in periods if p is not None])
        if made is not None:
            return made
    # First the axis whose result is smaller.
    for axis in sorted(weighted, key=lambda a: weighted[a].out / weighted[a].size):
        x = _multiplied(site, x, axis, weighted[axis])
    return x


def _is_identity(taps: Taps) -> bool:
    return taps.out == taps.size and np.array_equal(taps.matrix(), np.eye(taps.size))


# -- convolutions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Period:
    """Blocks of results: block b is made of elements `stride * b - before` and those that follow.

    filters: [taps, results of a block]; `skip` results of the first block come before the image.
    """

    stride: int
    before: int
    after: int
    filters: Float64
    skip: int
    spare: int

    @property
    def count(self) -> int:
        return int(self.filters.shape[1])


WHOLE = _Period(1, 0, 0, np.ones((1, 1)), 0, 0)


def _period(taps: Taps) -> _Period | None:
    """The shortest filter for all blocks, if the results repeat."""
    if np.any(taps.weights < 0):
        return None
    for count, stride in _ratios(taps):
        if count >= taps.out or _repeats(taps, count, stride):
            made = [_blocks(taps, count, stride, skip) for skip in range(count)]
            return min(made, key=lambda period: (len(period.filters), period.skip))
    return None


def _ratios(taps: Taps) -> list[tuple[int, int]]:
    """Numbers of results and of elements after which positions may repeat."""
    pairs = [(taps.out, taps.size), (taps.out - 1, taps.size - 1)]
    shared = [(a, b, math.gcd(a, b)) for a, b in pairs if min(a, b) > 0]
    ratios = [(a // common, b // common) for a, b, common in shared]
    return [ratio for ratio in ratios if ratio[0] <= MAX_PERIOD]


def _repeats(taps: Taps, count: int, stride: int) -> bool:
    later, now = taps.first[count:], taps.first[:-count]
    same = np.array_equal(later, now + stride)
    return same and bool(np.abs(taps.weights[count:] - taps.weights[:-count]).max() < CLOSE)


def _blocks(taps: Taps, count: int, stride: int, skip: int) -> _Period:
    """The filter if the first block has `skip` results before the image."""
    phases = np.arange(count)
    # A result of each phase, and the block that it is in.
    block = np.where(phases >= skip, 0, 1)
    known = phases - skip + count * block
    exists, known = known < taps.out, np.minimum(known, taps.out - 1)
    first, weights = taps.first[known] - stride * block, taps.weights[known]
    used = (weights > CLOSE) & exists[:, None]
    places = first[:, None] + np.arange(weights.shape[1])
    low, high = int(places[used].min()), int(places[used].max())
    filters = np.zeros((high - low + 1, count))
    rows = np.broadcast_to(phases[:, None], places.shape)
    np.add.at(filters, (places[used] - low, rows[used]), weights[used])
    blocks = -(-(taps.out + skip) // count)
    last = stride * (blocks - 1) + high - (taps.size - 1)
    made = (taps.size - low + max(last, 0) - len(filters)) // stride + 1
    return _Period(stride, -low, max(last, 0), filters, skip, made * count - skip - taps.out)


def _filtered(site: AnySite, x: str, periods: list[_Period]) -> str | None:
    """The image by one depthwise convolution, if it is small."""
    height, width = periods
    window = (len(height.filters), len(width.filters))
    strides, times = (height.stride, width.stride), (height.count, width.count)
    channels = (site.builder.graph.types[x].shape or (None,))[-1]
    if math.prod(window) > MAX_WINDOW or math.prod(times) > MAX_PERIOD or channels is None:
        return None
    x = _padded(site, x, periods)
    copies = math.prod(times)
    if copies > 1:
        x = site.helper("copies", "concat", *[x] * copies, axis=3)
    filters = np.einsum("ai,bj->abij", height.filters, width.filters).reshape(*window, copies, 1)
    dtype = np.dtype(site.builder.graph.types[x].dtype)
    weights = site.const(np.repeat(filters, channels, axis=2).astype(dtype), "weights")
    attrs = {"strides": strides, "dilations": (1, 1), "padding": PaddingRule.VALID, "pool": True}
    made = site.helper("phases", "depthwise_conv2d", x, weights, **attrs)
    whole = laid_out(site, made, times)
    return cut(site, whole, tuple((p.skip, 0) for p in periods), [p.spare for p in periods])


def _padded(site: AnySite, x: str, periods: list[_Period]) -> str:
    """The image with copies of its edges around it, without elements that no block uses."""
    shape = site.builder.graph.types[x].shape or ()
    pads = [(p.before, p.after) for p in periods]
    if all(0 <= side <= 1 for pair in pads for side in pair):
        if not any(map(any, pads)):
            return x
        around = ((0, 0), *pads, (0, 0))
        return site.helper("padded", "pad", x, paddings=around, mode="symmetric")
    for axis, (before, after) in zip((1, 2), pads, strict=True):
        size = shape[axis] or 0
        if (before, after) != (0, 0):
            indices = np.clip(np.arange(-before, size + after), 0, size - 1)
            picked = tuple(indices.tolist())
            x = site.helper(f"padded{axis}", "take", x, axis=axis, indices=picked)
    return x


# -- products ------------------------------------------------------------------------------------


def _multiplied(site: AnySite, x: str, axis: int, taps: Taps) -> str:
    """One axis by a product with a matrix."""
    graph = site.builder.graph
    n, height, width, channels = graph.types[x].shape or (None,) * 4
    if taps.out * taps.size > MAX_MATRIX or None in (height, width, channels):
        raise Inexpressible
    matrix: Array = taps.matrix().astype(np.dtype(graph.types[x].dtype))
    weights = site.const(matrix, f"matrix{axis}")
    if axis == 2:
        return site.helper("wide", "batch_matmul", weights, x)
    rest = (width or 0) * (channels or 0)
    batch = -1 if n is None else n
    rows = site.helper("rows", "reshape", x, shape=(batch, height, rest))
    made = site.helper("high", "batch_matmul", weights, rows)
    return site.helper("image", "reshape", made, shape=(batch, taps.out, width, channels))
