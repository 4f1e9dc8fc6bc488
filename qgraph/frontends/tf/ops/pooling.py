"""Pools and reductions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.cumulative import cumulative
from qgraph.frontends.tf.builder import Importer, Result, TfSite
from qgraph.frontends.tf.ops.layout import in_nhwc, padding, spatial


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


def _min(site: TfSite) -> Result:
    """The negated maximum of negated numbers."""
    axes, rank = site.integers(1), site.type().rank
    if axes is None or rank is None or not site.type().is_float:
        return None
    attrs = {"axes": tuple(sorted(a % rank for a in axes)), "keepdims": site.node.flag("keep_dims")}
    negated = site.helper("negated", "neg", site.inputs[0])
    return site.emit("neg", site.helper("largest", "reduce_max", negated, **attrs))


def _place(*, smallest: bool) -> Importer:
    """The position of the largest or of the smallest element along an axis."""

    def importer(site: TfSite) -> Result:
        axis, rank, x = site.integers(1), site.type().rank, site.inputs[0]
        if axis is None or rank is None or (smallest and not site.type().is_float):
            return None
        if smallest:
            x = site.helper("negated", "neg", x)
        dtype = site.node.dtype("output_type", "int64")
        return site.emit("argmax", x, axis=axis[0] % (rank or 1), dtype=dtype)

    return importer


def _cumulative_sum(site: TfSite) -> Result:
    axis, rank = site.integers(1), site.type().rank
    if axis is None or not rank:
        return None
    return cumulative(site, axis[0] % rank, site.node.flag("exclusive"), site.node.flag("reverse"))


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "MaxPool": _pool("max_pool"),
        "MaxPoolV2": _max_pool_v2,
        "AvgPool": _pool("avg_pool"),
        "Mean": _reduction("mean", float_only=True),
        "Sum": _reduction("sum", float_only=True),
        "Max": _reduction("reduce_max", float_only=False),
        "Min": _min,
        "Cumsum": _cumulative_sum,
        "ArgMax": _place(smallest=False),
        "ArgMin": _place(smallest=True),
    }
)
