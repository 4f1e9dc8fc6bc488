"""Convolutions, matrix products, biases and batch norms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.frontends.einsum import write_einsum
from qgraph.frontends.tf.builder import Importer, Result, TfSite
from qgraph.frontends.tf.ops.layout import channels_first, in_nhwc, window
from qgraph.frontends.tf.refused import in_training
from qgraph.ir.reading import kind_of


def _convolution(op: str) -> Importer:
    def importer(site: TfSite) -> Result:
        attrs = window(site.node)
        if attrs is None:
            return None
        x, w = site.inputs
        return in_nhwc(site, op, x, w, **attrs)

    return importer


def _turned(site: TfSite, i: int, what: str) -> str:
    """Input `i` with its last two axes exchanged; a new constant if it is constant."""
    value = site.constant(i)
    if value is not None:
        return site.const(np.ascontiguousarray(np.swapaxes(value, -1, -2)), what)
    rank = site.type(i).rank or 2
    perm = (*range(rank - 2), rank - 1, rank - 2)
    return site.helper(what, "transpose", site.inputs[i], perm=perm)


def _matmul(site: TfSite) -> Result:
    a = _turned(site, 0, "a") if site.node.flag("transpose_a") else site.inputs[0]
    b = _turned(site, 1, "b") if site.node.flag("transpose_b") else site.inputs[1]
    return site.emit("matmul", a, b)


def _batch_matmul(site: TfSite) -> Result:
    """Products of matrices; a batch of rows times one constant matrix is a layer."""
    x_shape, w_shape = site.shape(0), site.shape(1)
    if x_shape is None or w_shape is None or len(x_shape) < 2 or len(w_shape) < 2:
        return None
    dtype = site.type().dtype
    if not site.type().is_float or site.node.dtype("Tout", dtype) != dtype:
        return None
    b = _turned(site, 1, "b") if site.node.flag("adj_y") else site.inputs[1]
    if len(x_shape) == len(w_shape) == 2:
        a = _turned(site, 0, "a") if site.node.flag("adj_x") else site.inputs[0]
        return site.emit("matmul", a, b)
    k, out = x_shape[-1], site.builder.graph.types[b].shape
    dense = len(w_shape) == 2 and site.is_fixed(1) and not site.node.flag("adj_x")
    if not dense or k is None or x_shape[:-1].count(None) > 1 or out is None or out[1] is None:
        a = _turned(site, 0, "a") if site.node.flag("adj_x") else site.inputs[0]
        return site.emit("batch_matmul", a, b)
    rows = site.helper("rows", "reshape", site.inputs[0], shape=(-1, k))
    product = site.helper("matmul", "matmul", rows, b)
    target = (*(-1 if d is None else d for d in x_shape[:-1]), out[1])
    return site.emit("reshape", product, shape=target)


def _einsum(site: TfSite) -> Result:
    return write_einsum(site, site.node.text("equation"))


def _bias_add(site: TfSite) -> Result:
    x, b = site.inputs
    if not channels_first(site.node):
        return site.emit("bias_add", x, b)
    rank = site.type(0).rank
    if rank is None:
        return None
    back = (0, rank - 1, *range(1, rank - 1))
    turned = site.helper("to_nhwc", "transpose", x, perm=(0, *range(2, rank), 1))
    return site.emit("transpose", site.helper("nhwc", "bias_add", turned, b), perm=back)


def _batch_norm(site: TfSite) -> Result:
    node = site.node
    training = not node.has("is_training") or node.flag("is_training")
    if training:
        made = _layer_norm(site) if channels_first(node) else None
        if made is None and (site.shape(0) or (None,))[0] != 1:
            raise in_training(node)
        return made  # over one sample, as instance norms do: float
    if node.text("data_format", "NHWC") not in ("NHWC", "NCHW", "NDHWC"):
        return None
    x, *statistics = site.inputs
    y = in_nhwc(site, "batch_norm", x, *statistics, epsilon=node.real("epsilon", 1e-4))
    return (y, *statistics[2:])


def _layer_norm(site: TfSite) -> Result:
    """Keras' layer norm: rows [..., c] as channels of one image [1, n, c, 1], in training mode."""
    graph = site.builder.graph
    before = graph.producer(site.inputs[0])
    fills = [graph.producer(value) for value in site.inputs[1:3]]
    filled = [graph.constant(fill.inputs[1]) if kind_of(fill) == "Fill" else None for fill in fills]
    rows = graph.types[before.inputs[0]].shape if before.op == "reshape" else None
    image = site.shape(0) or ()
    if rows is None or len(rows) < 2 or len(image) != 4 or filled != [1, 0]:
        return None
    channels, x = image[2] or 0, before.inputs[0]
    ends = [math.prod(d or 0 for d in rows[axis:]) for axis in range(1, len(rows))]
    if (image[0], image[3]) != (1, 1) or not channels or channels not in ends:
        return None
    if rows[-1] != channels:  # over several axes
        x = site.helper("rows", "reshape", x, shape=(-1, channels))
    dtype = site.type(0).dtype
    gamma, beta = np.ones(channels, dtype), np.zeros(channels, dtype)
    vectors = (site.const(gamma, "gamma"), site.const(beta, "beta"))
    site.without_effect(3, 4, "exponential_avg_factor")  # updated statistics of training
    epsilon = site.node.real("epsilon", 1e-4)
    made = site.helper("layer_norm", "layer_norm", x, *vectors, epsilon=epsilon)
    return (site.emit("reshape", made, shape=(1, -1, channels, 1)), None, None)


def _global_batch_norm(site: TfSite) -> Result:
    """The batch norm of graphs before 2016: statistics first, with an optional scale."""
    x, mean, variance, beta, gamma = site.inputs
    if not site.node.flag("scale_after_normalization"):
        beta_shape = site.shape(3)
        if beta_shape is None or None in beta_shape:
            return None
        gamma = site.const(np.ones([d or 0 for d in beta_shape], site.type(3).dtype), "gamma")
    epsilon = site.node.real("variance_epsilon", 0.0)
    return site.emit("batch_norm", x, gamma, beta, mean, variance, epsilon=epsilon)


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "Conv2D": _convolution("conv2d"),
        "DepthwiseConv2dNative": _convolution("depthwise_conv2d"),
        "MatMul": _matmul,
        "BatchMatMul": _batch_matmul,
        "BatchMatMulV2": _batch_matmul,
        "BatchMatMulV3": _batch_matmul,
        "Einsum": _einsum,
        "BiasAdd": _bias_add,
        "BiasAddV1": _bias_add,
        "BatchNormWithGlobalNormalization": _global_batch_norm,
        "FusedBatchNorm": _batch_norm,
        "FusedBatchNormV2": _batch_norm,
        "FusedBatchNormV3": _batch_norm,
    }
)
