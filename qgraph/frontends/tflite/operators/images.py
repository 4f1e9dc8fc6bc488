"""Pools, resizing, and ops that trade space for depth or batch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.operators.translator import Translator, renamed
from qgraph.frontends.tflite.translation import Translation


def _pool(op: str) -> Translator:
    def write(t: Translation) -> Ref:
        made = t.emit(
            op,
            t.input(0),
            ksize=(1, t.option("FilterHeight"), t.option("FilterWidth"), 1),
            strides=(1, t.option("StrideH"), t.option("StrideW"), 1),
            padding=t.padding(),
        )
        return t.activated(made)

    return write


def _resize(op: str) -> Translator:
    def write(t: Translation) -> Ref:
        return t.emit(
            op,
            t.input(0),
            t.input(1),
            align_corners=bool(t.optional("AlignCorners")),
            half_pixel_centers=bool(t.optional("HalfPixelCenters")),
        )

    return write


def _block(op: str) -> Translator:
    return lambda t: t.emit(op, t.input(0), block_size=t.option("BlockSize"))


OPERATORS: Mapping[str, Translator] = MappingProxyType(
    {
        "AVERAGE_POOL_2D": _pool("AvgPool"),
        "MAX_POOL_2D": _pool("MaxPool"),
        "RESIZE_BILINEAR": _resize("ResizeBilinear"),
        "RESIZE_NEAREST_NEIGHBOR": _resize("ResizeNearestNeighbor"),
        "SPACE_TO_DEPTH": _block("SpaceToDepth"),
        "DEPTH_TO_SPACE": _block("DepthToSpace"),
        "SPACE_TO_BATCH_ND": renamed("SpaceToBatchND"),
        "BATCH_TO_SPACE_ND": renamed("BatchToSpaceND"),
    }
)
