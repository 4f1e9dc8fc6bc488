"""3-D convolutions and pools."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.tf.builder import Importer, Result, TfSite
from qgraph.frontends.volumes import (
    NO_PADS,
    TO_FIRST,
    TO_LAST,
    Planes,
    Triple,
    VolumePads,
    convolution,
    pool,
    same_pads,
    sizes_of_volume,
)

ONES = (1,) * 5


def _channels_first(site: TfSite) -> bool:
    return site.node.text("data_format", "NDHWC") == "NCDHW"


def _volume(site: TfSite) -> str:
    """The first input as [n, depth, height, width, channels]."""
    x = site.inputs[0]
    return site.helper("to_ndhwc", "transpose", x, perm=TO_LAST) if _channels_first(site) else x


def _finished(site: TfSite, planes: Planes) -> str:
    images, shape = planes
    if not _channels_first(site):
        return site.emit("reshape", images, shape=shape)
    volume = site.helper("ndhwc", "reshape", images, shape=shape)
    return site.emit("transpose", volume, perm=TO_FIRST)


def triple(site: TfSite, key: str) -> Triple | None:
    """An attribute per axis; None if batch or channels are involved."""
    values = site.node.integers(key, ONES)
    if len(values) != 5:
        return None
    first = _channels_first(site)
    inner = values[2:] if first else values[1:4]
    ends = (values[0], values[1]) if first else (values[0], values[4])
    return (inner[0], inner[1], inner[2]) if ends == (1, 1) else None


def _pads(
    site: TfSite, x: str, kernel: Triple, strides: Triple, dilations: Triple
) -> VolumePads | None:
    name = site.node.text("padding")
    if name == "VALID":
        return NO_PADS
    depth, height, width, _ = sizes_of_volume(site, x)
    if name != "SAME":
        return None
    return same_pads((depth, height, width), kernel, strides, dilations)


def _conv(site: TfSite) -> Result:
    weights = site.constant(1)
    strides, dilations = triple(site, "strides"), triple(site, "dilations")
    if weights is None or weights.ndim != 5 or strides is None or dilations is None:
        return None
    x = _volume(site)
    depth, height, width = weights.shape[:3]
    pads = _pads(site, x, (depth, height, width), strides, dilations)
    if pads is None:
        return None
    return _finished(site, convolution(site, x, weights, strides, dilations, pads))


def _pool(op: str) -> Importer:
    def importer(site: TfSite) -> Result:
        kernel, strides = triple(site, "ksize"), triple(site, "strides")
        if kernel is None or strides is None or not site.type().is_float:
            return None
        x = _volume(site)
        pads = _pads(site, x, kernel, strides, (1, 1, 1))
        return None if pads is None else _finished(site, pool(site, op, x, kernel, strides, pads))

    return importer


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {"Conv3D": _conv, "MaxPool3D": _pool("max_pool"), "AvgPool3D": _pool("avg_pool")}
)
