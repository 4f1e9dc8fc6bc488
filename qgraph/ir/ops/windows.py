"""Sliding windows over NHWC arrays: padding arithmetic shared by convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from qgraph.enums import StrEnum
from qgraph.errors import GraphError
from qgraph.ir.types import Array
from qgraph.ops.attribute_types import Pads, Pair


class PaddingRule(StrEnum):
    """Padding that follows from the sizes of the image and the window."""

    SAME = "same"  # a window at every `stride` positions of the image
    VALID = "valid"  # no padding


Padding = PaddingRule | Pads  # or ((top, bottom), (left, right))
MAX_POSITIONS = 1 << 28  # positions of a padded input


def out_size(
    size: int | None, kernel: int, stride: int, dilation: int, padding: PaddingRule | Pair
) -> int | None:
    """Positions of a window along one axis; None if the size is unknown."""
    if size is None:
        return None
    if padding is PaddingRule.SAME:
        return -(-size // stride)
    before, after = (0, 0) if padding is PaddingRule.VALID else (int(padding[0]), int(padding[1]))
    span = (kernel - 1) * dilation + 1
    count = (size + before + after - span) // stride + 1
    if count < 1:
        raise GraphError(f"a window of {span} does not fit into {size} + padding {(before, after)}")
    return count


def out_sizes(
    sizes: Sequence[int | None], kernel: Pair, strides: Pair, dilations: Pair, padding: Padding
) -> tuple[int | None, int | None]:
    per_axis = (padding, padding) if isinstance(padding, PaddingRule) else padding
    height, width = (
        out_size(sizes[i], kernel[i], strides[i], dilations[i], per_axis[i]) for i in (0, 1)
    )
    known = [1 if size is None else size for size in sizes]
    pads = explicit_pads(known, kernel, strides, dilations, padding)
    area = math.prod(size + sum(pad) for size, pad in zip(known, pads, strict=True))
    if area > MAX_POSITIONS:
        raise GraphError(f"padding {pads} makes an input of {area:,} positions")
    return height, width


def explicit_pads(
    sizes: Sequence[int], kernel: Pair, strides: Pair, dilations: Pair, padding: Padding
) -> Pads:
    """Explicit padding; `same` splits as in TensorFlow, with the odd element after."""
    if not isinstance(padding, PaddingRule):
        return padding
    if padding is PaddingRule.VALID:
        return ((0, 0), (0, 0))
    pads = []
    for i in (0, 1):
        span = (kernel[i] - 1) * dilations[i] + 1
        total = max((-(-sizes[i] // strides[i]) - 1) * strides[i] + span - sizes[i], 0)
        pads.append((total // 2, total - total // 2))
    return (pads[0], pads[1])


def padded(x: Array, pads: Pads, fill: float = 0) -> Array:
    if pads == ((0, 0), (0, 0)):
        return x
    return np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=fill)


def taps(
    x: Array, kernel: Pair, strides: Pair, dilations: Pair
) -> Iterator[tuple[int, int, Array]]:
    """Yield for each kernel position (i, j) its view of `x` over all windows."""
    rows = (x.shape[1] - (kernel[0] - 1) * dilations[0] - 1) // strides[0] + 1
    cols = (x.shape[2] - (kernel[1] - 1) * dilations[1] - 1) // strides[1] + 1
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dilations[0], j * dilations[1]
            yield (
                i,
                j,
                x[
                    :,
                    top : top + (rows - 1) * strides[0] + 1 : strides[0],
                    left : left + (cols - 1) * strides[1] + 1 : strides[1],
                ],
            )
