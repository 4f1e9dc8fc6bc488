"""Transposed convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.errors import GraphError
from qgraph.frontends.builder import Importer, Result, TfSite
from qgraph.frontends.tf_ops.layout import padding, spatial
from qgraph.frontends.transposed import around, check_filter_size, cut, laid_out, phases, taps_of
from qgraph.ir.ops.windows import PaddingRule
from qgraph.ops.attribute_types import Pair


def _conv_transpose(site: TfSite) -> Result:
    """`Conv2DBackpropInput(sizes, filters [h, w, out, in], x)`, images in NHWC."""
    node, filters = site.node, site.constant(1)
    strides, mode = spatial(node.integers("strides"), node), padding(node)
    dilations = spatial(node.integers("dilations", (1, 1, 1, 1)), node)
    size, target = _sizes(site)
    if filters is None or filters.ndim != 4 or strides is None or dilations != (1, 1):
        return None
    if not isinstance(mode, PaddingRule) or size is None or target is None:
        return None
    if node.text("data_format", "NHWC") != "NHWC" or not site.type(2).is_float:
        return None
    kernel: Pair = filters.shape[:2]
    # Padding of the convolution whose gradient this is, and positions that it does not use.
    totals = [(i - 1) * s + k - o for i, s, k, o in zip(size, strides, kernel, target, strict=True)]
    if mode is PaddingRule.VALID and max(totals) > 0:
        raise GraphError(f"an image of {target} is too small for the filter", node=site.name)
    extra: Pair = (max(-totals[0], 0), max(-totals[1], 0))
    pads = tuple((max(t, 0) // 2, max(t, 0) - max(t, 0) // 2) for t in totals)
    w = filters.transpose(3, 2, 0, 1)
    taps = taps_of(kernel, extra, strides)
    check_filter_size((*w.shape[:2], taps[0] * strides[0], taps[1] * strides[1]), filters)
    weights = site.const(phases(w, strides, taps), "weights")
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": around(taps)}
    made = site.helper("phases", "conv2d", site.inputs[2], weights, **attrs)
    spare = [taps[i] * strides[i] - kernel[i] - extra[i] + pads[i][1] for i in (0, 1)]
    return site.emit("identity", cut(site, laid_out(site, made, strides), pads, spare))


def _sizes(site: TfSite) -> tuple[Pair | None, Pair | None]:
    """Height and width of the input image and of the output image."""
    shape, wanted = site.shape(2) or (), site.partial(0)
    size = shape[1:3] if len(shape) == 4 else ()
    known = (size[0], size[1]) if len(size) == 2 and size[0] and size[1] else None
    if wanted is None or wanted.values.shape != (4,) or wanted.missing[1:3].any():
        return known, None
    return known, (int(wanted.values[1]), int(wanted.values[2]))


IMPORTERS: Mapping[str, Importer] = MappingProxyType({"Conv2DBackpropInput": _conv_transpose})
