"""Rows of a layer's input and output: the operands of its product at some output positions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.types import Array
from qgraph.parallel import Each
from qgraph.quant.float_statistics import channel_sums
from qgraph.quant.paired import PairedLayer
from qgraph.rewrite.constants import Float64

# The largest number of elements in the input columns of a layer (128 MiB in float32).
MAX_COLUMN_ELEMENTS = 1 << 25
# Number of rows that are gathered at a time, so that they stay in cache.
ROWS = 128
# One in this many images is held out, to choose between nearest and optimized codes.
HELD_OUT = 4


@dataclass(frozen=True)
class LayerRows:
    """A layer as `groups` products `x [rows, k] @ w [k, n]`.

    x [groups, rows, k]; `rest` [groups, rows, n] is the float output minus the product with float
    weights, `y - x w`. Weights are chosen by the rows `used`, and the choice is checked on the last
    rows, `checked`, which are those of images that are held out. If no image can be held out, both
    are all rows. `power`: the sum of y**2 over `checked`. `centre`: the means over rows used that
    were subtracted from x, [groups, k]; a bias compensates for the means subtracted from `rest`.
    `centre` is 0 without a bias.
    """

    x: Array
    rest: Array
    used: slice
    checked: slice
    power: float
    centre: Float64 | float = 0.0

    def centred(self) -> LayerRows:
        """Subtract means from x and rest, in place, because a bias corrects mean errors."""
        means = [_means(v[:, self.used]) for v in (self.x, self.rest)]
        for values, mean in zip((self.x, self.rest), means, strict=True):
            values -= mean[:, None].astype(values.dtype)
        return replace(self, centre=means[0])

    @staticmethod
    def of(layer: PairedLayer, weights: Array, samples: int, each: Each) -> LayerRows:
        """The rows at `samples` output positions, or fewer if the layer is very wide.

        weights: those of the float layer, in its own shape.
        """
        w = as_products(layer, weights)
        groups, k, n = w.shape
        most = max(1, min(samples, MAX_COLUMN_ELEMENTS // (groups * k)))
        parts = _chosen(layer, -(-most // len(layer.inputs)))
        counts = np.array([(len(used), len(held)) for used, held in parts])
        used, held = (int(count) for count in counts.sum(axis=0))
        both = used > 0 and held > 0
        # For each chunk, the start of its used rows and of its held-out rows.
        starts = np.cumsum(counts, axis=0) - counts + (0, used)
        x = np.empty((groups, used + held, k), layer.inputs[0].dtype)
        rest = np.empty((groups, used + held, n), layer.wanted[0].dtype)

        def gather(i: int) -> float:
            wanted, power = layer.wanted[i].reshape(-1, groups * n), 0.0
            for positions, start, checked in zip(
                parts[i], starts[i], (not both, True), strict=True
            ):
                for first in range(0, len(positions), ROWS):
                    some = positions[first : first + ROWS]
                    rows = slice(start + first, start + first + len(some))
                    columns = _columns(layer, i, weights.shape, some)
                    by_group = columns.reshape(*columns.shape[:2], groups, -1)
                    x[:, rows] = by_group.transpose(2, 0, 1, 3).reshape(groups, -1, k)
                    y = wanted[some].reshape(-1, groups, n).transpose(1, 0, 2)
                    rest[:, rows] = y - x[:, rows] @ w
                    power += float(np.square(y, dtype=np.float64).sum()) * checked
            return power

        power = sum(each(gather, range(len(parts))))
        whole = slice(0, used + held)
        first, last = (slice(0, used), slice(used, used + held)) if both else (whole, whole)
        return LayerRows(x, rest, first, last, power)


def _means(values: Array) -> Float64:
    """Means over rows; values [groups, rows, n], result [groups, n]."""
    sums: Float64 = np.stack([channel_sums(rows) for rows in values])
    return np.asarray(sums / values.shape[1])


def as_products(layer: PairedLayer, weights: Array) -> Array:
    """Weights of a layer, [groups, k, n]: one product for each group, or channel, of its input."""
    channels, groups = layer.wanted[0].shape[-1], 1
    if layer.node.op != "matmul":
        inputs = layer.inputs[0].shape[-1]
        groups = inputs if layer.node.op == "depthwise_conv2d" else inputs // weights.shape[2]
    # Depthwise weights are [h, w, group, n], others [h, w, k, group * n].
    split = weights.reshape(-1, groups, channels // groups).transpose(1, 0, 2)
    return np.ascontiguousarray(split)


def _chosen(layer: PairedLayer, share: int) -> list[tuple[Array, Array]]:
    """Output positions of each chunk, at most `share`: those used, and those held out."""
    starts = np.cumsum([0, *map(len, layer.inputs)])
    parts = []
    for i, y in enumerate(layer.wanted):
        count = y.size // y.shape[-1]
        positions = np.arange(count)
        if count > share:
            rng = np.random.default_rng(i)
            positions = np.sort(rng.choice(count, share, replace=False))
        images = starts[i] + positions // (count // len(y))
        held = (images if starts[-1] >= HELD_OUT else positions) % HELD_OUT == HELD_OUT - 1
        parts.append((positions[~held], positions[held]))
    return parts


def _columns(layer: PairedLayer, chunk: int, filters: tuple[int, ...], positions: Array) -> Array:
    """Inputs of some output positions, [positions, taps, channels]; zeros in the padding."""
    x, out = layer.inputs[chunk], layer.wanted[chunk].shape
    pixels = x.reshape(-1, x.shape[-1])
    if layer.node.op == "matmul":
        return pixels[positions, None]
    attrs, kernel = layer.node.typed(ConvAttrs), (filters[0], filters[1])
    pads = attrs.pads(x.shape[1:3], kernel)
    image, *corner = np.unravel_index(positions, out[:-1])
    # For each axis of the filter and each tap, the row or column of the image.
    rows, columns = (
        corner[axis] * attrs.strides[axis]
        - pads[axis][0]
        + np.arange(kernel[axis])[:, None] * attrs.dilations[axis]
        for axis in (0, 1)
    )
    height, width = x.shape[1:3]
    result = np.empty((len(positions), kernel[0] * kernel[1], x.shape[-1]), x.dtype)
    for tap, (row, column) in enumerate(itertools.product(rows, columns)):
        outside = (row < 0) | (row >= height) | (column < 0) | (column >= width)
        places = (image * height + row) * width + column
        result[:, tap] = pixels[np.where(outside, 0, places)]
        result[outside, tap] = 0
    return result
