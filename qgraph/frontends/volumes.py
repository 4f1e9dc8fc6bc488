"""3-D convolutions and pools as 2-D ones. Volumes are [n, depth, height, width, channels].

The planes of a volume are the images of a larger batch. A convolution takes the planes that one
window covers as channels of one image, so its sums are the same. A pool over a window is one over
height and width, then one over depth.
"""

from __future__ import annotations

import numpy as np

from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.site import AnySite
from qgraph.ir.ops.windows import Padding, PaddingRule
from qgraph.ir.types import Array
from qgraph.ops.attribute_types import Pair

Triple = tuple[int, int, int]
VolumePads = tuple[Pair, Pair, Pair]
Planes = tuple[str, tuple[int, ...]]  # images, and the shape that makes them a volume again
NO_PADS: VolumePads = ((0, 0), (0, 0), (0, 0))
TO_LAST, TO_FIRST = (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)  # of the channels


def sizes_of_volume(site: AnySite, x: str) -> tuple[int, int, int, int]:
    """Depth, height, width and channels. Raises Inexpressible where one of them is open."""
    shape = site.builder.graph.types[x].shape
    if shape is None or len(shape) != 5 or not all(shape[1:]):
        raise Inexpressible
    depth, height, width, channels = (int(size or 0) for size in shape[1:])
    return depth, height, width, channels


def same_pads(sizes: Triple, kernel: Triple, strides: Triple, dilations: Triple) -> VolumePads:
    """Padding such that the result has `size / stride` planes, rows and columns, rounded up."""

    def of(size: int, kernel: int, stride: int, dilation: int) -> Pair:
        span = (kernel - 1) * dilation + 1
        total = max((-(-size // stride) - 1) * stride + span - size, 0)
        return total // 2, total - total // 2

    first, second, third = map(of, sizes, kernel, strides, dilations)
    return first, second, third


def with_ceilings(sizes: Triple, kernel: Triple, strides: Triple, pads: VolumePads) -> VolumePads:
    """Padding with more at the ends, so that incomplete windows count (`ceil_mode`)."""
    first, second, third = map(with_ceiling, sizes, kernel, strides, pads)
    return first, second, third


def with_ceiling(size: int, kernel: int, stride: int, pads: Pair) -> Pair:
    """The same for one axis. A window that would begin after the image does not count."""
    last_start = size + sum(pads) - kernel
    count = -(-last_start // stride) + 1
    if (count - 1) * stride >= size + pads[0]:
        count -= 1
    return (pads[0], pads[1] + max((count - 1) * stride - last_start, 0))


def convolution(
    site: AnySite, x: str, weights: Array, strides: Triple, dilations: Triple, pads: VolumePads
) -> Planes:
    """A convolution with weights [depth, height, width, in / groups, out]."""
    depth, height, width, channels = sizes_of_volume(site, x)
    taps, rows, columns, inner, out = weights.shape
    groups = channels // inner if inner else 0
    if inner * groups != channels or not groups or out % groups:
        raise Inexpressible
    if any(pads[0]):
        x = around(site, x, (pads[0], (0, 0), (0, 0)))
        depth += sum(pads[0])
    count = (depth - (taps - 1) * dilations[0] - 1) // strides[0] + 1
    if count < 1:
        raise Inexpressible
    indices = tuple(
        i * strides[0] + tap * dilations[0] for i in range(count) for tap in range(taps)
    )
    if indices != tuple(range(depth)):
        x = site.helper("planes", "take", x, axis=1, indices=indices)
    if taps > 1 and groups == 1:
        windows = site.helper("windows", "reshape", x, shape=(-1, taps, height, width, channels))
        x = site.helper("by_place", "transpose", windows, perm=(0, 2, 3, 1, 4))
    elif taps > 1:  # the planes of a group's channels are neighbours
        shape = (-1, taps, height * width, groups, inner)
        windows = site.helper("windows", "reshape", x, shape=shape)
        x = site.helper("by_group", "transpose", windows, perm=(0, 2, 3, 1, 4))
    images = site.helper("images", "reshape", x, shape=(-1, height, width, taps * channels))
    turned = np.moveaxis(weights, 0, 2).reshape(rows, columns, taps * inner, out)
    depthwise = groups > 1 and taps * inner == 1
    if depthwise:
        turned = turned.reshape(rows, columns, groups, out // groups)
    made = site.helper(
        "planewise", "depthwise_conv2d" if depthwise else "conv2d", images,
        site.const(np.ascontiguousarray(turned), "weights"),
        strides=strides[1:], dilations=dilations[1:], padding=_padding(pads[1], pads[2]),
    )  # fmt: skip
    return made, _volume(site, made, count)


def pool(
    site: AnySite, op: str, x: str, kernel: Triple, strides: Triple, pads: VolumePads
) -> Planes:
    """A pool of kind `op`: max_pool, or avg_pool, which does not count padding."""
    depth, height, width, channels = sizes_of_volume(site, x)
    images = site.helper("images", "reshape", x, shape=(-1, height, width, channels))
    made = site.helper(
        "planewise", op, images,
        ksize=kernel[1:], strides=strides[1:], padding=_padding(pads[1], pads[2]),
    )  # fmt: skip
    _, height, width, _ = _known(site, made)
    columns = site.helper("columns", "reshape", made, shape=(-1, depth, height * width, channels))
    made = site.helper(
        "depthwise", op, columns,
        ksize=(kernel[0], 1), strides=(strides[0], 1), padding=_padding(pads[0], (0, 0)),
    )  # fmt: skip
    _, depth, _, _ = _known(site, made)
    return made, (-1, depth, height, width, channels)


def around(site: AnySite, x: str, pads: VolumePads) -> str:
    """A volume with zeros around it."""
    paddings = ((0, 0), *pads, (0, 0))
    return site.helper("padded", "pad", x, paddings=paddings, mode="constant", value=0)


def _padding(first: Pair, second: Pair) -> Padding:
    return (first, second) if any(first) or any(second) else PaddingRule.VALID


def _known(site: AnySite, images: str) -> tuple[int, ...]:
    shape = site.builder.graph.types[images].shape
    if shape is None or not all(shape[1:]):
        raise Inexpressible
    return (-1, *(int(size or 0) for size in shape[1:]))


def _volume(site: AnySite, images: str, count: int) -> tuple[int, ...]:
    _, height, width, channels = _known(site, images)
    return -1, count, height, width, channels
