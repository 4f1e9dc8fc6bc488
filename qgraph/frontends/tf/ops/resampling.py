"""Ops that trade space for depth or batch, and resizing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from qgraph.frontends.resampled import (
    LINEAR,
    MAX_SIDE,
    InterpolationKernel,
    Taps,
    cubic,
    interpolated,
    only_inside,
    resampled,
)
from qgraph.frontends.tf.builder import Importer, Result, TfSite
from qgraph.frontends.tf.node import NOT_NUMPY
from qgraph.frontends.tf.ops.layout import in_nhwc

CUBIC_STEPS = 1024  # TensorFlow takes the weights of cubic interpolation from a table


def _resize_nearest(site: TfSite) -> Result:
    size = site.integers(1)
    if size is None:
        return None
    return site.emit(
        "resize_nearest",
        site.inputs[0],
        size=size,
        align_corners=site.node.flag("align_corners"),
        half_pixel=site.node.flag("half_pixel_centers"),
    )


def _resize(kernel: Callable[[bool], InterpolationKernel], steps: int = 0) -> Importer:
    """Resize by a kernel, which may depend on whether positions are centres of pixels."""

    def importer(site: TfSite) -> Result:
        size, shape, node = site.integers(1), site.shape(), site.node
        if size is None or shape is None or len(shape) != 4 or site.type().dtype in NOT_NUMPY:
            return None
        sizes = [d or 0 for d in shape[1:]]  # 0: unknown
        if not all(1 <= s <= MAX_SIDE for s in (*size, *sizes)):
            return None
        corners, half = node.flag("align_corners"), node.flag("half_pixel_centers")
        made, axes = kernel(half), list[Taps]()
        for known, wanted in zip(sizes[:2], size, strict=True):
            ratio = known / wanted
            if corners and wanted > 1:
                ratio = (known - 1) / (wanted - 1)
            shift = 0.5 if half else 0.0
            x = np.asarray((np.arange(wanted) + shift) * ratio - shift, np.float64)
            taps = interpolated(known, x, made, steps=steps)
            axes.append(only_inside(taps) if half and made.reach > 1 else taps)
        image = site.inputs[0]
        if site.type().dtype != "float32":  # TensorFlow's results are float32 for every input
            image = site.helper("float", "cast", image, dtype="float32")
        return site.emit("identity", resampled(site, image, *axes))

    return importer


def _block_op(op: str) -> Importer:
    def importer(site: TfSite) -> Result:
        if site.node.text("data_format", "NHWC") not in ("NHWC", "NCHW"):
            return None
        return in_nhwc(site, op, site.inputs[0], block=site.node.integer("block_size"))

    return importer


def _batch_op(op: str, attr: str, block: tuple[int, ...] | None, margins: object) -> Importer:
    def importer(site: TfSite) -> Result:
        if block is None or margins is None or site.type().rank != len(block) + 2:
            return None
        pairs = tuple((int(a), int(b)) for a, b in np.asarray(margins))
        if len(block) == 2:
            return site.emit(op, site.inputs[0], block=block, **{attr: pairs})
        if len(block) != 1:
            return None
        image = site.helper("image", "expand_dims", site.inputs[0], axis=1)
        attrs = {"block": (1, *block), attr: ((0, 0), *pairs)}
        return site.emit("squeeze", site.helper("blocks", op, image, **attrs), axes=(1,))

    return importer


def _batch_nd(op: str, attr: str) -> Importer:
    return lambda site: _batch_op(op, attr, site.integers(1), site.small_constant(2))(site)


def _batch_square(op: str, attr: str) -> Importer:
    def importer(site: TfSite) -> Result:
        size = site.node.integer("block_size")
        return _batch_op(op, attr, (size, size), site.small_constant(1))(site)

    return importer


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "ResizeNearestNeighbor": _resize_nearest,
        "ResizeBilinear": _resize(lambda half: LINEAR),
        "ResizeBicubic": _resize(lambda half: cubic(-0.5 if half else -0.75), CUBIC_STEPS),
        "SpaceToDepth": _block_op("space_to_depth"),
        "DepthToSpace": _block_op("depth_to_space"),
        "SpaceToBatchND": _batch_nd("space_to_batch", "paddings"),
        "BatchToSpaceND": _batch_nd("batch_to_space", "crops"),
        "SpaceToBatch": _batch_square("space_to_batch", "paddings"),
        "BatchToSpace": _batch_square("batch_to_space", "crops"),
    }
)
