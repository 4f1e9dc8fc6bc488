"""Pools and reductions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.builder import Importer, Result, TfSite
from qgraph.frontends.tf_ops.layout import in_nhwc, padding, spatial


def _pooled(
    site: TfSite, op: str, ksize: tuple[int, ...] | None, strides: tuple[int, ...] | None
) -> Result:
    if ksize is None or strides is None:
        return None
    window, steps = spatial(ksize, site.node), spatial(strides, site.node)
    pads = padding(site.node)
    if window is None or steps is None or pads is None or not site.type().is_float:
        return None
    return in_nhwc(site, op, site.inputs[0], ksize=window, strides=steps, padding=pads)


def _pool(op: str) -> Importer:
    return lambda site: _pooled(
        site, op, site.node.integers("ksize"), site.node.integers("strides")
    )


def _max_pool_v2(site: TfSite) -> Result:
    return _pooled(site, "max_pool", site.integers(1), site.integers(2))


def _reduction(op: str, *, float_only: bool) -> Importer:
    def importer(site: TfSite) -> Result:
        axes, rank = site.integers(1), site.type().rank
        if axes is None or (float_only and not site.type().is_float):
            return None
        if rank is not None:
            axes = tuple(sorted(a % rank for a in axes)) if rank else ()
        return site.emit(op, site.inputs[0], axes=axes, keepdims=site.node.flag("keep_dims"))

    return importer


def _argmax(site: TfSite) -> Result:
    axis = site.integers(1)
    if axis is None or site.type().rank is None:
        return None
    dtype = site.node.dtype("output_type", "int64")
    return site.emit("argmax", site.inputs[0], axis=axis[0] % (site.type().rank or 1), dtype=dtype)


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "MaxPool": _pool("max_pool"),
        "MaxPoolV2": _max_pool_v2,
        "AvgPool": _pool("avg_pool"),
        "Mean": _reduction("mean", float_only=True),
        "Sum": _reduction("sum", float_only=True),
        "Max": _reduction("reduce_max", float_only=False),
        "ArgMax": _argmax,
    }
)
