"""Transposed convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.onnx.ops.layout import (
    back,
    check_kernel,
    explicit,
    image,
    pair,
    refuse_pads,
)
from qgraph.frontends.transposed import around, check_filter_size, cut, laid_out, phases, taps_of
from qgraph.ir.types import Array
from qgraph.ops.attribute_types import Pair


def _conv_transpose(site: OnnxSite) -> Result:
    weights = site.constant(1)
    if weights is None or not site.type().is_float or site.rank() not in (3, 4):
        return None
    if weights.ndim != site.rank():
        raise GraphError(f"weights of shape {weights.shape} for {site.type()}", node=site.name)
    check_kernel(site, weights.shape)
    strides = pair(site, "strides")
    w = _dense(site, weights)
    kernel: Pair = (w.shape[2], w.shape[3])
    extra = _output_padding(site)
    pads = _pads(site, kernel, strides, extra)
    taps = taps_of(kernel, extra, strides)
    check_filter_size((*w.shape[:2], taps[0] * strides[0], taps[1] * strides[1]), weights)
    filters = phases(w, strides, taps)
    made = site.helper(
        "phases", "conv2d", image(site), site.const(filters, "weights"),
        strides=(1, 1), dilations=(1, 1), padding=around(taps),
    )  # fmt: skip
    if site.has(2):
        made = site.helper("biased", "bias_add", made, _bias(site, w.shape[1], strides))
    whole = laid_out(site, made, strides)
    spare = [taps[i] * strides[i] - kernel[i] - extra[i] + pads[i][1] for i in (0, 1)]
    return back(site, cut(site, whole, pads, spare), site.rank())


def _dense(site: OnnxSite, weights: Array) -> Array:
    """[in, out/groups, h, w] -> [in, out, h, w], dilated; zero between channels of two groups."""
    groups, (dh, dw) = site.node.integer("group", 1), pair(site, "dilations")
    w = weights[:, :, None] if weights.ndim == 3 else weights
    channels, per_group, height, width = w.shape
    if groups < 1 or channels % groups or site.known_shape()[1] not in (None, channels):
        raise GraphError(f"{groups} groups do not fit weights of {weights.shape}", node=site.name)
    kernel = ((height - 1) * dh + 1, (width - 1) * dw + 1)
    shape = (channels, per_group * groups, *kernel)
    check_filter_size(shape, weights)
    made = np.zeros(shape, w.dtype)
    share = channels // groups
    for g in range(groups):
        rows, columns = slice(g * share, (g + 1) * share), slice(g * per_group, (g + 1) * per_group)
        made[rows, columns, ::dh, ::dw] = w[rows]
    return made


def _output_padding(site: OnnxSite) -> Pair:
    values = site.node.integers("output_padding")
    if not values:
        return (0, 0)
    spatial = site.rank() - 2
    if len(values) != spatial:
        raise GraphError(f"output_padding {values} for {spatial} axes", node=site.name)
    extra = (values[0], values[1]) if spatial == 2 else (0, values[0])
    if any(e and e >= s for e, s in zip(extra, pair(site, "strides"), strict=True)):
        raise Inexpressible
    return extra


def _pads(site: OnnxSite, kernel: Pair, strides: Pair, extra: Pair) -> tuple[Pair, ...]:
    """Padding to remove at each end; negative where the output grows."""
    mode, shape = site.node.text("auto_pad", "NOTSET"), site.node.integers("output_shape")
    if shape is None and mode == "NOTSET":
        return explicit(site)
    refuse_pads(site)
    if shape is None and mode == "VALID":
        return ((0, 0), (0, 0))
    spatial = (site.builder.graph.types[image(site)].shape or ())[1:3]
    totals = []
    for i, (k, s, e) in enumerate(zip(kernel, strides, extra, strict=True)):
        if shape is None:
            totals.append(max(e + k - s, 0))
            continue
        size, wanted = spatial[i], ((1, *shape) if len(shape) == 1 else shape[-2:])[i]
        if size is None:
            raise Inexpressible
        totals.append(s * (size - 1) + e + k - wanted)
    if min(totals) < 0:
        raise Inexpressible
    upper = mode == "SAME_UPPER"
    return tuple((t // 2, t - t // 2) if upper else (t - t // 2, t // 2) for t in totals)


def _bias(site: OnnxSite, channels: int, strides: Pair) -> str:
    bias = site.constant(2)
    if bias is None:
        raise Inexpressible
    if bias.shape != (channels,):
        raise GraphError(f"a bias of {bias.shape} for {channels} channels", node=site.name)
    return site.const(np.tile(bias, strides[0] * strides[1]), "bias")


IMPORTERS: Mapping[str, Importer] = MappingProxyType({"ConvTranspose": _conv_transpose})
