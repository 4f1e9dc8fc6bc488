"""Pools, over windows and over the whole image."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.errors import UnsupportedError
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.onnx.ops.dilated import dilated_average_pool, dilated_max_pool
from qgraph.frontends.onnx.ops.layout import (
    NONE,
    back,
    image,
    in_nhwc,
    pair,
    window,
    with_ceiling,
)
from qgraph.frontends.onnx.ops.volumes import pool_of_volume
from qgraph.ir.ops.windows import Padding, PaddingRule
from qgraph.ops.attribute_types import Pads, Pair


def _window(site: OnnxSite) -> tuple[Pair, Pair]:
    if not site.type().is_float or site.node.integers("kernel_shape") is None:
        raise Inexpressible
    return pair(site, "kernel_shape"), pair(site, "strides")


def _max_pool(site: OnnxSite) -> Result:
    if any(site.node.outputs[1:]):
        raise UnsupportedError("a max pool that also gives indices", node=site.name)
    if site.rank() == 5:
        return pool_of_volume(site, "max_pool")
    kernel, strides = _window(site)
    if (dilations := pair(site, "dilations")) != (1, 1):
        return dilated_max_pool(site, kernel, strides, dilations)
    pads = with_ceiling(site, window(site, kernel, strides, (1, 1)), kernel, strides)
    return in_nhwc(site, "max_pool", ksize=kernel, strides=strides, padding=pads)


def _average_pool(site: OnnxSite) -> Result:
    """An average pool. Padding that counts is added to the image first, as its own op."""
    if site.rank() == 5:
        return pool_of_volume(site, "avg_pool")
    kernel, strides = _window(site)
    if (dilations := pair(site, "dilations")) != (1, 1):
        return dilated_average_pool(site, kernel, strides, dilations)
    counted = site.node.flag("count_include_pad")
    pads, x = window(site, kernel, strides, (1, 1), numbers=counted), image(site)
    whole = with_ceiling(site, pads, kernel, strides)
    if counted and not isinstance(pads, PaddingRule) and pads != NONE:
        around = ((0, 0), *pads, (0, 0))
        x = site.helper("padded", "pad", x, paddings=around, mode="constant", value=0)
        whole = _beyond(whole, pads) if site.node.flag("ceil_mode") else PaddingRule.VALID
    made = site.helper("nhwc", "avg_pool", x, ksize=kernel, strides=strides, padding=whole)
    return back(site, made, site.rank())


def _beyond(whole: Padding, inner: Pads) -> Padding:
    """The part of `whole` beyond `inner`."""
    assert not isinstance(whole, PaddingRule)
    height, width = ((w[0] - i[0], w[1] - i[1]) for w, i in zip(whole, inner, strict=True))
    return height, width


def _global(op: str) -> Importer:
    def importer(site: OnnxSite) -> Result:
        if not site.type().is_float or site.rank() < 3:
            return None
        if site.rank() > 4:
            axes = tuple(range(2, site.rank()))
            return site.emit(op, site.inputs[0], axes=axes, keepdims=True)
        return in_nhwc(site, op, axes=(1, 2), keepdims=True)

    return importer


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "MaxPool": _max_pool,
        "AveragePool": _average_pool,
        "GlobalAveragePool": _global("mean"),
        "GlobalMaxPool": _global("reduce_max"),
    }
)
