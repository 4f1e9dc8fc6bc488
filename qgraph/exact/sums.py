"""Sums of products with constant weights: the range of each output channel, and its extremes.

The highest sum has the highest input code at positive weights and the lowest at negative ones. It
is exact, not an estimate: there is a window that contains all terms of the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from qgraph.ir.types import Array, Codes
from qgraph.ops.attribute_types import Pads

Mask = Literal[True] | Array  # the taps of a window inside the image; True for all
FLOAT32_EXACT = 1 << 24
FLOAT64_EXACT = 1 << 53
COLUMNS = "depthwise_conv2d"  # its last two axes are its output channels


@dataclass(frozen=True)
class Sums:
    """Range of sums of products for each output channel: int64 arrays."""

    lows: Codes
    highs: Codes
    magnitudes: Codes

    def plus(self, bias: Codes) -> Sums:
        """With a constant added to each channel."""
        return Sums(self.lows + bias, self.highs + bias, self.magnitudes + np.abs(bias))


def sums_of_products(
    op: str, weights: Array, low: int, high: int, magnitude: int, windows: Sequence[Mask] = (True,)
) -> Sums:
    """Sums of codes `low..high` with the op's weights (integers, or floats with integer values).

    windows: sets of taps [height, width] inside the image, True for all; see `seen_taps`.
    """
    low, high = min(low, 0), max(high, 0)  # terms may be absent (padding)
    weights = weights if weights.dtype.kind == "f" else weights.astype(np.int64)
    found = [_of_window(by_channel(op, weights, mask), low, high, magnitude) for mask in windows]
    return Sums(
        np.min([s.lows for s in found], axis=0),
        np.max([s.highs for s in found], axis=0),
        np.max([s.magnitudes for s in found], axis=0),
    )


def _of_window(weights: Array, low: int, high: int, magnitude: int) -> Sums:
    sums, sizes = _column_sums(weights), _column_sums(np.abs(weights))
    positive, negative = (sizes + sums) // 2, (sums - sizes) // 2
    return Sums(
        positive * low + negative * high, positive * high + negative * low, sizes * magnitude
    )


def _column_sums(codes: Array) -> Codes:
    """Sums over the terms, int64 [output channels]; floats are summed in float32 if it is exact."""
    if codes.dtype.kind != "f":
        return np.asarray(codes.sum(axis=0))
    largest = max(float(codes.max(initial=0)), -float(codes.min(initial=0)))
    exact = largest * codes.shape[0] <= FLOAT32_EXACT
    total = np.add.reduce(codes, axis=0, dtype=None if exact else np.float64)
    return np.asarray(total.astype(np.int64))


def by_channel(op: str, weights: Array, mask: Mask = True) -> Array:
    """Weight codes as [terms, output channels], those of the taps in `mask`."""
    kept = weights if mask is True else weights[mask]
    columns = weights.shape[-2] * weights.shape[-1] if op == COLUMNS else weights.shape[-1]
    return kept.reshape(-1, columns)


def seen_taps(
    image: Sequence[int | None],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Pads,
) -> list[Mask]:
    """Sets of taps inside the image, as masks [height, width], one for each kind of window.

    image: height and width, None if unknown. `[True]` if a window is completely inside.
    """
    axes = [
        None if image[i] is None else [
            tuple(0 <= s + tap * dilations[i] < (image[i] or 0) for tap in range(kernel[i]))
            for s in _starts(image[i] or 0, kernel[i], strides[i], dilations[i], pads[i])
        ]
        for i in (0, 1)
    ]  # fmt: skip
    if all(axis is None or (True,) * kernel[i] in axis for i, axis in enumerate(axes)):
        return [True]
    rows, columns = (sorted(set(axis or [(True,) * kernel[i]])) for i, axis in enumerate(axes))
    return [np.logical_and.outer(row, column) for row in rows for column in columns]


def _starts(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> range:
    """Starts of windows along an axis."""
    span = (kernel - 1) * dilation + 1
    return range(-pads[0], size + pads[1] - span + 1, stride)


def farthest_input(
    op: str,
    attrs: Mapping[str, Any],
    shape: Sequence[int],
    codes: tuple[int, int],
    weights: Array,
    channel: int,
    side: str,
) -> Codes:
    """Codes of a layer's input, [shape], that give the most extreme sum of an output channel.

    attrs: strides, dilations and pads of a convolution. codes: the lowest and the highest. side:
    `highest` or `lowest`. Positions outside of the window are 0, or the code nearest to it.
    """
    low, high = codes
    ends = (low, high) if side == "highest" else (high, low)
    made = np.full(tuple(shape), min(max(0, low), high), np.int64)
    if op == "matmul":
        made[0] = np.where(weights[:, channel] > 0, ends[1], ends[0])
        return made
    taps = _filter(op, weights, channel)
    first = _first_channel(op, shape[3], weights, channel)
    top, left = _best_window(attrs, shape, taps, (min(low, 0), max(high, 0)), side)
    for i, j in np.ndindex(*taps.shape[:2]):
        row, column = top + i * attrs["dilations"][0], left + j * attrs["dilations"][1]
        if 0 <= row < shape[1] and 0 <= column < shape[2]:
            made[0, row, column, first : first + taps.shape[2]] = np.where(
                taps[i, j] > 0, ends[1], ends[0]
            )
    return made


def _filter(op: str, weights: Array, channel: int) -> Codes:
    """The filter of one output channel, [height, width, inputs]."""
    if op == COLUMNS:
        c, m = divmod(channel, weights.shape[3])
        return np.asarray(weights[:, :, c : c + 1, m], np.int64)
    return np.asarray(weights[..., channel], np.int64)


def _first_channel(op: str, inputs: int, weights: Array, channel: int) -> int:
    """The first input channel of an output channel."""
    if op == COLUMNS:
        return int(channel // weights.shape[3])
    groups = inputs // weights.shape[2]
    return int(channel // (weights.shape[3] // groups) * weights.shape[2])


def _best_window(
    attrs: Mapping[str, Any], shape: Sequence[int], taps: Codes, codes: tuple[int, int], side: str
) -> tuple[int, int]:
    """Start of the window whose taps inside the input give the most extreme sum."""
    low, high = codes if side == "highest" else (codes[1], codes[0])
    reach = np.abs(np.where(taps > 0, taps * high, taps * low)).sum(axis=2)
    best, place = -1, (0, 0)
    rows, columns = (
        _starts(shape[1 + i], taps.shape[i], attrs["strides"][i], attrs["dilations"][i],
                attrs["pads"][i])
        for i in (0, 1)
    )  # fmt: skip
    inside = [
        {s: [0 <= s + t * attrs["dilations"][i] < shape[1 + i] for t in range(taps.shape[i])]
         for s in starts}
        for i, starts in enumerate((rows, columns))
    ]  # fmt: skip
    for top, row_mask in _distinct(inside[0]).items():
        for left, column_mask in _distinct(inside[1]).items():
            total = int(reach[np.logical_and.outer(row_mask, column_mask)].sum())
            if total > best:
                best, place = total, (top, left)
    return place


def _distinct(masks: Mapping[int, list[bool]]) -> dict[int, list[bool]]:
    """One tap set for each distinct mask."""
    places = {tuple(mask): start for start, mask in masks.items()}
    return {start: list(mask) for mask, start in places.items()}
