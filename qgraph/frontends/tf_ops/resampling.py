"""Ops that trade space for depth or batch, and nearest-neighbour resizing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.frontends.builder import Importer, Result, TfSite
from qgraph.frontends.tf_ops.layout import in_nhwc


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


def _block_op(op: str) -> Importer:
    def importer(site: TfSite) -> Result:
        if site.node.text("data_format", "NHWC") not in ("NHWC", "NCHW"):
            return None
        return in_nhwc(site, op, site.inputs[0], block=site.node.integer("block_size"))

    return importer


def _batch_op(op: str, attr: str, block: tuple[int, ...] | None, margins: object) -> Importer:
    def importer(site: TfSite) -> Result:
        if block is None or margins is None or len(block) != 2 or site.type().rank != 4:
            return None
        pairs = tuple((int(a), int(b)) for a, b in np.asarray(margins))
        return site.emit(op, site.inputs[0], block=block, **{attr: pairs})

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
        "SpaceToDepth": _block_op("space_to_depth"),
        "DepthToSpace": _block_op("depth_to_space"),
        "SpaceToBatchND": _batch_nd("space_to_batch", "paddings"),
        "BatchToSpaceND": _batch_nd("batch_to_space", "crops"),
        "SpaceToBatch": _batch_square("space_to_batch", "paddings"),
        "BatchToSpace": _batch_square("batch_to_space", "crops"),
    }
)
