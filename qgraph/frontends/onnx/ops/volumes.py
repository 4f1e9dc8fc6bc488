"""Convolutions and pools of volumes, [n, channels, depth, height, width] in the model."""

from __future__ import annotations

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import OnnxSite
from qgraph.frontends.onnx.ops.layout import check_kernel, refuse_pads, sizes_of
from qgraph.frontends.volumes import (
    NO_PADS,
    TO_FIRST,
    TO_LAST,
    Planes,
    Triple,
    VolumePads,
    around,
    convolution,
    pool,
    same_pads,
    sizes_of_volume,
    with_ceilings,
)


def conv_of_volume(site: OnnxSite) -> str:
    """A convolution whose image has rank 5, with its bias."""
    sizes, weights = sizes_of(site, 1), site.builder.constant(site.inputs[1])
    if len(sizes) != 5:
        raise GraphError(f"weights of {sizes} for a volume", node=site.name)
    check_kernel(site, sizes)
    groups, channels = site.node.integer("group", 1), site.known_shape()[1]
    if groups < 1 or sizes[0] % groups or channels not in (None, sizes[1] * groups):
        raise GraphError(
            f"{groups} groups of {channels} channels do not fit weights of {sizes}", node=site.name
        )
    if weights is None or not site.type().is_float:
        raise Inexpressible
    strides, dilations = _triple(site, "strides"), _triple(site, "dilations")
    x = site.helper("to_ndhwc", "transpose", site.inputs[0], perm=TO_LAST)
    pads = _pads(site, x, (sizes[2], sizes[3], sizes[4]), strides, dilations)
    turned = np.transpose(weights, (2, 3, 4, 1, 0))
    images, shape = convolution(site, x, turned, strides, dilations, pads)
    if site.has(2):
        images = site.helper("biased", "bias_add", images, site.inputs[2])
    return finished(site, (images, shape))


def pool_of_volume(site: OnnxSite, op: str) -> str:
    """A pool over windows whose image has rank 5. Raises Inexpressible for dilations."""
    dilated = any(d != 1 for d in site.node.integers("dilations") or ())
    if not site.type().is_float or dilated:
        raise Inexpressible
    kernel, strides = _triple(site, "kernel_shape"), _triple(site, "strides")
    x = site.helper("to_ndhwc", "transpose", site.inputs[0], perm=TO_LAST)
    pads = _pads(site, x, kernel, strides, (1, 1, 1))
    inner = pads
    if site.node.flag("ceil_mode"):
        depth, height, width, _ = sizes_of_volume(site, x)
        pads = with_ceilings((depth, height, width), kernel, strides, pads)
    if site.node.flag("count_include_pad") and inner != NO_PADS:
        x = around(site, x, inner)
        first, second, third = (
            (p[0] - i[0], p[1] - i[1]) for p, i in zip(pads, inner, strict=True)
        )
        pads = (first, second, third)
    return finished(site, pool(site, op, x, kernel, strides, pads))


def finished(site: OnnxSite, planes: Planes) -> str:
    """The node's output, from planes."""
    images, shape = planes
    volume = site.helper("ndhwc", "reshape", images, shape=shape)
    return site.emit("transpose", volume, perm=TO_FIRST)


def _triple(site: OnnxSite, key: str) -> Triple:
    values = site.node.integers(key) or (1, 1, 1)
    if len(values) != 3 or min(values) < 1:
        raise GraphError(f"{key} {values} does not fit a volume", node=site.name)
    return values[0], values[1], values[2]


def _pads(site: OnnxSite, x: str, kernel: Triple, strides: Triple, dilations: Triple) -> VolumePads:
    mode = site.node.text("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return given_pads(site)
    refuse_pads(site)
    if mode == "VALID":
        return NO_PADS
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise GraphError(f"unknown auto_pad `{mode}`", node=site.name)
    depth, height, width, _ = sizes_of_volume(site, x)
    first, second, third = same_pads((depth, height, width), kernel, strides, dilations)
    if mode == "SAME_UPPER":
        return first, second, third
    return first[::-1], second[::-1], third[::-1]


def given_pads(site: OnnxSite) -> VolumePads:
    """Attribute `pads` of a volume."""
    pads = site.node.integers("pads") or (0,) * 6
    if len(pads) != 6 or min(pads) < 0:
        raise GraphError(f"pads {pads} do not fit a volume", node=site.name)
    return (pads[0], pads[3]), (pads[1], pads[4]), (pads[2], pads[5])
