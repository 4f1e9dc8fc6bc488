"""Convolutions and matrix products, with the biases that they carry."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.einsum import write_einsum
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.onnx.ops.layout import (
    back,
    check_kernel,
    image,
    pair,
    reordered,
    sizes_of,
    window,
)
from qgraph.frontends.onnx.ops.volumes import conv_of_volume
from qgraph.ops.attribute_types import Pair


def _conv(site: OnnxSite) -> Result:
    if site.rank() == 5:
        return conv_of_volume(site)
    sizes, groups = sizes_of(site, 1), site.node.integer("group", 1)
    if site.rank() not in (3, 4):
        return None
    channels = site.known_shape()[1]
    if len(sizes) != site.rank() or groups < 1 or sizes[0] % groups:
        raise GraphError(f"{groups} groups do not fit weights of {sizes}", node=site.name)
    if channels not in (None, sizes[1] * groups):
        raise GraphError(f"{channels} channels do not fit weights of {sizes}", node=site.name)
    check_kernel(site, sizes)
    kernel: Pair = (sizes[2], sizes[3]) if len(sizes) == 4 else (1, sizes[-1])
    strides, dilations = pair(site, "strides"), pair(site, "dilations")
    pads = window(site, kernel, strides, dilations)
    attrs = {"strides": strides, "dilations": dilations, "padding": pads}
    op, weights = _filter(site, sizes, groups, kernel)
    made = site.helper("nhwc", op, image(site), weights, **attrs)
    if site.has(2):
        made = site.helper("biased", "bias_add", made, site.inputs[2])
    return back(site, made, site.rank())


def _filter(site: OnnxSite, sizes: tuple[int, ...], groups: int, kernel: Pair) -> tuple[str, str]:
    """[out, in/groups, h, w] as [h, w, in/groups, out]; depthwise as [h, w, in, out/in]."""
    out, per_group = sizes[:2]
    if groups > 1 and per_group == 1:
        shape, perm = (groups, out // groups, *kernel), (2, 3, 0, 1)
        return "depthwise_conv2d", reordered(site, site.inputs[1], shape, perm, "weights")
    shape, perm = (out, per_group, *kernel), (2, 3, 1, 0)
    return "conv2d", reordered(site, site.inputs[1], shape, perm, "weights")


def _turned(site: OnnxSite, i: int, what: str) -> str:
    if site.rank(i) != 2:
        raise GraphError(f"{site.type(i)} is not a matrix", node=site.name)
    value = site.inputs[i]
    return site.helper(what, "transpose", value, perm=(1, 0))


def _scaled(site: OnnxSite, value: str, factor: float, what: str) -> str:
    if factor == 1:
        return value
    array = site.builder.constant(value)
    if array is not None and site.builder.allows(array.size):
        key, what = ("scaled", value, factor), f"{what}_scaled"
        return site.derived(key, lambda: (array * factor).astype(array.dtype), what)
    dtype = site.builder.graph.types[value].dtype
    scale = site.const(np.asarray(factor, dtype), f"{what}_factor")
    return site.helper(f"{what}_scaled", "mul", value, scale)


def _gemm(site: OnnxSite) -> Result:
    if not site.type().is_float:
        return None
    a = _turned(site, 0, "a") if site.node.flag("transA") else site.inputs[0]
    b = _turned(site, 1, "b") if site.node.flag("transB") else site.inputs[1]
    b = _scaled(site, b, site.node.real("alpha", 1.0), "b")
    beta = site.node.real("beta", 1.0)
    if not site.has(2) or beta == 0:
        site.without_effect(2)
        return site.emit("matmul", a, b)
    product = site.helper("matmul", "matmul", a, b)
    c = _scaled(site, site.inputs[2], beta, "c")
    types = site.builder.graph.types
    width, shape = types[product].shape, types[c].shape
    if shape is None or width is None:
        raise Inexpressible
    vector = [d for d in shape if d != 1]
    if vector == [width[-1]] and shape[-1] == width[-1]:
        if len(shape) > 1:
            c = site.helper("bias", "reshape", c, shape=(width[-1],))
        return site.emit("bias_add", product, c)
    return site.emit("add", product, c)


def _matmul(site: OnnxSite) -> Result:
    x_shape, w_shape = site.known_shape(0), site.known_shape(1)
    if not site.type().is_float or not (x_shape and w_shape):
        return None
    x, w = site.inputs
    if len(x_shape) < 2 or len(w_shape) < 2:
        return _of_vectors(site, x, w)
    if len(x_shape) == len(w_shape) == 2:
        return site.emit("matmul", x, w)
    if len(w_shape) > 2 and all(d == 1 for d in w_shape[:-2]):
        w = site.helper("w", "squeeze", w, axes=tuple(range(len(w_shape) - 2)))
        w_shape = w_shape[-2:] if len(x_shape) >= len(w_shape) else w_shape
    if len(w_shape) != 2 or not site.is_fixed(1):
        return site.emit("batch_matmul", *site.inputs)
    return _rows(site, x, w)


def _of_vectors(site: OnnxSite, x: str, w: str) -> Result:
    """A product with a vector: a row before the matrices, or a column behind them."""
    row, column = (len(site.known_shape(i)) == 1 for i in (0, 1))
    x = site.helper("row", "expand_dims", x, axis=0) if row else x
    w = site.helper("column", "expand_dims", w, axis=1) if column else w
    types = site.builder.graph.types
    ranks = types[x].rank, types[w].rank
    op = "matmul" if ranks == (2, 2) else "batch_matmul"
    made, rank = site.helper("product", op, x, w), max(r or 2 for r in ranks)
    axes = (*((rank - 2,) if row else ()), *((rank - 1,) if column else ()))
    return site.emit("squeeze", made, axes=axes)


def _rows(site: OnnxSite, x: str, w: str) -> Result:
    """Write a batch of rows times one matrix as one product of two matrices."""
    types = site.builder.graph.types
    shape, width = types[x].shape or (), (types[w].shape or (None,))[-1]
    if shape[-1] is None or width is None or shape[:-1].count(None) > 1:
        return site.emit("batch_matmul", *site.inputs)
    rows = site.helper("rows", "reshape", x, shape=(-1, shape[-1]))
    product = site.helper("matmul", "matmul", rows, w)
    target = (*(-1 if d is None else d for d in shape[:-1]), width)
    return site.emit("reshape", product, shape=target)


def _einsum(site: OnnxSite) -> Result:
    return write_einsum(site, site.node.text("equation"))


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {"Conv": _conv, "Einsum": _einsum, "Gemm": _gemm, "MatMul": _matmul}
)
