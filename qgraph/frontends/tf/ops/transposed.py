"""Transposed convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from qgraph.errors import GraphError
from qgraph.frontends.tf.builder import Importer, Result, TfSite
from qgraph.frontends.tf.ops.layout import padding, spatial
from qgraph.frontends.tf.ops.volumes import triple
from qgraph.frontends.transposed import around, check_filter_size, cut, laid_out, phases, taps_of
from qgraph.frontends.transposed_volumes import transposed_convolution
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
    totals = _totals(site, size, strides, kernel, target)
    extra: Pair = (max(-totals[0], 0), max(-totals[1], 0))
    pads = tuple(map(_halves, totals))
    w = filters.transpose(3, 2, 0, 1)
    taps = taps_of(kernel, extra, strides)
    check_filter_size((*w.shape[:2], taps[0] * strides[0], taps[1] * strides[1]), filters)
    weights = site.const(phases(w, strides, taps), "weights")
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": around(taps)}
    made = site.helper("phases", "conv2d", site.inputs[2], weights, **attrs)
    spare = [taps[i] * strides[i] - kernel[i] - extra[i] + pads[i][1] for i in (0, 1)]
    return site.emit("identity", cut(site, laid_out(site, made, strides), pads, spare))


def _conv_of_volume(site: TfSite) -> Result:
    """`Conv3DBackpropInputV2(sizes, filters [depth, h, w, out, in], x)`, volumes in NDHWC."""
    node, filters = site.node, site.constant(1)
    strides, dilations = triple(site, "strides"), triple(site, "dilations")
    if filters is None or filters.ndim != 5 or strides is None or dilations != (1, 1, 1):
        return None
    if node.text("data_format", "NDHWC") != "NDHWC" or not site.type(2).is_float:
        return None
    size, target = _sizes(site, 5)
    if size is None or target is None:
        return None
    w = filters.transpose(4, 3, 0, 1, 2)
    totals = _totals(site, size, strides, filters.shape[:3], target)
    first, second, third = map(_halves, totals)
    extra = (max(-totals[0], 0), max(-totals[1], 0), max(-totals[2], 0))
    pads = (first, second, third)
    planes, shape = transposed_convolution(site, site.inputs[2], w, strides, pads, extra)
    return site.emit("reshape", planes, shape=shape)


def _totals(
    site: TfSite,
    size: Sequence[int],
    strides: Sequence[int],
    kernel: Sequence[int],
    target: Sequence[int],
) -> list[int]:
    """Padding of the convolution whose gradient this is; below 0, positions that it lacks."""
    axes = zip(size, strides, kernel, target, strict=True)
    totals = [(i - 1) * s + k - o for i, s, k, o in axes]
    if padding(site.node) is PaddingRule.VALID and max(totals) > 0:
        raise GraphError(f"an image of {target} is too small for the filter", node=site.name)
    return totals


def _halves(total: int) -> Pair:
    return max(total, 0) // 2, max(total, 0) - max(total, 0) // 2


def _sizes(site: TfSite, rank: int = 4) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Sizes of the axes of the input image and of the output image."""
    shape, wanted = site.shape(2) or (), site.partial(0)
    size = shape[1:-1] if len(shape) == rank else ()
    known = tuple(d or 0 for d in size) if size and all(size) else None
    if wanted is None or wanted.values.shape != (rank,) or wanted.missing[1:-1].any():
        return known, None
    return known, tuple(int(d) for d in wanted.values[1:-1])


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {"Conv2DBackpropInput": _conv_transpose, "Conv3DBackpropInputV2": _conv_of_volume}
)
