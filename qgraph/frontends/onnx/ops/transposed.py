"""Transposed convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.onnx.ops.layout import back, check_kernel, explicit, image, pair, refuse_pads
from qgraph.frontends.onnx.ops.volumes import finished, given_pads
from qgraph.frontends.transposed import around, check_filter_size, cut, laid_out, phases, taps_of
from qgraph.frontends.transposed_volumes import transposed_convolution
from qgraph.frontends.volumes import TO_LAST
from qgraph.ir.types import Array
from qgraph.ops.attribute_types import Pair


def _conv_transpose(site: OnnxSite) -> Result:
    weights = site.constant(1)
    if weights is None or not site.type().is_float or site.rank() not in (3, 4, 5):
        return None
    if weights.ndim != site.rank():
        raise GraphError(f"weights of shape {weights.shape} for {site.type()}", node=site.name)
    check_kernel(site, weights.shape)
    w = _dense(site, weights)
    if site.rank() == 5:
        return _of_volume(site, w)
    strides = pair(site, "strides")
    kernel: Pair = (w.shape[2], w.shape[3])
    rows, columns = _output_padding(site)
    extra = (rows, columns)
    pads = _pads(site, kernel, strides, extra, image(site))
    taps = taps_of(kernel, extra, strides)
    check_filter_size((*w.shape[:2], taps[0] * strides[0], taps[1] * strides[1]), weights)
    filters = phases(w, strides, taps)
    made = site.helper(
        "phases", "conv2d", image(site), site.const(filters, "weights"),
        strides=(1, 1), dilations=(1, 1), padding=around(taps),
    )  # fmt: skip
    if site.has(2):
        each = np.tile(_bias(site, w.shape[1]), strides[0] * strides[1])
        made = site.helper("biased", "bias_add", made, site.const(each, "bias"))
    whole = laid_out(site, made, strides)
    spare = [taps[i] * strides[i] - kernel[i] - extra[i] + pads[i][1] for i in (0, 1)]
    return back(site, cut(site, whole, pads, spare), site.rank())


def _of_volume(site: OnnxSite, w: Array) -> Result:
    x = site.helper("to_ndhwc", "transpose", site.inputs[0], perm=TO_LAST)
    (sd, sh, sw), (ed, eh, ew) = _axes(site, "strides"), _output_padding(site)
    strides, extra = (sd, sh, sw), (ed, eh, ew)
    first, second, third = _pads(site, w.shape[2:], strides, extra, x)
    bias = _bias(site, w.shape[1]) if site.has(2) else None
    pads = (first, second, third)
    return finished(site, transposed_convolution(site, x, w, strides, pads, extra, bias))


def _axes(site: OnnxSite, key: str) -> tuple[int, ...]:
    """An attribute for each axis of the image; a signal has height 1."""
    spatial = site.rank() - 2
    values = site.node.integers(key) or (1,) * spatial
    if len(values) != spatial or min(values) < 1:
        raise GraphError(f"{key} {values} do not fit {spatial} axes", node=site.name)
    return values if spatial > 1 else (1, *values)


def _dense(site: OnnxSite, weights: Array) -> Array:
    """[in, out/groups, ...] -> [in, out, ...], dilated; zero between channels of two groups."""
    groups, dilations = site.node.integer("group", 1), _axes(site, "dilations")
    w = weights[:, :, None] if weights.ndim == 3 else weights
    channels, per_group = w.shape[:2]
    if groups < 1 or channels % groups or site.known_shape()[1] not in (None, channels):
        raise GraphError(f"{groups} groups do not fit weights of {weights.shape}", node=site.name)
    kernel = ((k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True))
    shape = (channels, per_group * groups, *kernel)
    check_filter_size(shape, weights)
    made, share = np.zeros(shape, w.dtype), channels // groups
    places = tuple(slice(None, None, d) for d in dilations)
    for g in range(groups):
        rows, columns = slice(g * share, (g + 1) * share), slice(g * per_group, (g + 1) * per_group)
        made[(rows, columns, *places)] = w[rows]
    return made


def _output_padding(site: OnnxSite) -> tuple[int, ...]:
    spatial = site.rank() - 2
    values = site.node.integers("output_padding") or (0,) * spatial
    if len(values) != spatial:
        raise GraphError(f"output_padding {values} for {spatial} axes", node=site.name)
    extra = values if spatial > 1 else (0, *values)
    if any(e and e >= s for e, s in zip(extra, _axes(site, "strides"), strict=True)):
        raise Inexpressible
    return extra


def _pads(
    site: OnnxSite, kernel: Sequence[int], strides: Sequence[int], extra: Sequence[int], x: str
) -> tuple[Pair, ...]:
    """Padding to remove at each end of the image `x`; negative where the output grows."""
    mode, shape = site.node.text("auto_pad", "NOTSET"), site.node.integers("output_shape")
    if shape is None and mode == "NOTSET":
        return given_pads(site) if site.rank() == 5 else explicit(site)
    refuse_pads(site)
    if shape is None and mode == "VALID":
        return ((0, 0),) * len(kernel)
    spatial = (site.builder.graph.types[x].shape or ())[1:-1]
    totals = []
    for i, (k, s, e) in enumerate(zip(kernel, strides, extra, strict=True)):
        if shape is None:
            totals.append(max(e + k - s, 0))
            continue
        size, wanted = spatial[i], ((1, *shape) if len(shape) == 1 else shape[-len(kernel) :])[i]
        if size is None:
            raise Inexpressible
        totals.append(s * (size - 1) + e + k - wanted)
    if min(totals) < 0:
        raise Inexpressible
    upper = mode == "SAME_UPPER"
    return tuple((t // 2, t - t // 2) if upper else (t - t // 2, t // 2) for t in totals)


def _bias(site: OnnxSite, channels: int) -> Array:
    bias = site.constant(2)
    if bias is None:
        raise Inexpressible
    if bias.shape != (channels,):
        raise GraphError(f"a bias of {bias.shape} for {channels} channels", node=site.name)
    return bias


IMPORTERS: Mapping[str, Importer] = MappingProxyType({"ConvTranspose": _conv_transpose})
