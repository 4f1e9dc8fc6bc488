"""Float ops on several elements: products of matrices, pools, norms, reductions, softmaxes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.backends.tflite.floats.float_writer import FloatLower, FloatWriter
from qgraph.backends.tflite.layers import padding_of
from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Node
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.ops.norm import NormAttrs
from qgraph.ir.ops.pool import ArgmaxAttrs, PoolAttrs, ReductionAttrs
from qgraph.ir.ops.windows import explicit_pads
from qgraph.ir.types import Array
from qgraph.ops.attribute_types import Pads


def _reduction(op: str) -> FloatLower:
    def lower(w: FloatWriter, node: Node) -> int:
        (x,), attrs = node.inputs, node.typed(ReductionAttrs)
        axes = sorted({axis % len(w.shape(x)) for axis in attrs.axes})
        if not axes:
            return w.get(x)
        inputs = [w.get(x), w.integers(axes, f"{node.name}/axes")]
        return w.operator(
            op, inputs, node, "ReducerOptions", 2, shape=w.shape(node.name),
            dtype=w.dtype(node.name), KeepDims=attrs.keepdims,
        )  # fmt: skip

    return lower


def _argmax(w: FloatWriter, node: Node) -> int:
    (x,), attrs, kind = node.inputs, node.typed(ArgmaxAttrs), w.dtype(node.name)
    if kind not in ("int32", "int64"):
        raise UnsupportedError(f"TFLite's ARG_MAX does not give {kind}", node=node.name)
    axis = w.constant(np.int32(attrs.axis % len(w.shape(x))), f"{node.name}/axis")
    return w.operator(
        "ARG_MAX", [w.get(x), axis], node, "ArgMaxOptions", 2, shape=w.shape(node.name),
        dtype=kind, OutputType=w.model.enum("TensorType", kind.upper()),
    )  # fmt: skip


def _softmax(op: str, options: str, beta: float | None = None) -> FloatLower:
    """Over the last axis; another one is moved there and back."""

    def lower(w: FloatWriter, node: Node) -> int:
        (x,) = node.inputs
        rank, value = len(w.shape(x)), w.get(x)
        axis = node.typed(AxisAttrs).axis % rank
        perm = [*range(axis), *range(axis + 1, rank), axis]
        if axis != rank - 1:
            value = transposed(w, value, perm, node)
        if beta is None:
            value = w.operator(op, [value], node, options)
        else:
            value = w.operator(op, [value], node, options, Beta=beta)
        return value if axis == rank - 1 else transposed(w, value, np.argsort(perm).tolist(), node)

    return lower


def transposed(
    w: FloatWriter, value: int, perm: list[int], node: Node, dtype: str = "float32"
) -> int:
    shape = [w.shapes[value][axis] for axis in perm]
    inputs = [value, w.integers(perm, f"{node.name}/order")]
    return w.operator("TRANSPOSE", inputs, node, "TransposeOptions", shape=shape, dtype=dtype)


def _matmul(w: FloatWriter, node: Node) -> int:
    inputs = [w.get(value) for value in node.inputs]
    return w.operator("BATCH_MATMUL", inputs, node, "BatchMatMulOptions", shape=w.shape(node.name))


LOWEST = float(np.finfo(np.float32).min)


def _pool(op: str, edge: float | None = None) -> FloatLower:
    """edge: a number around the image that has no effect, if there is one."""

    def lower(w: FloatWriter, node: Node) -> int:
        (x,), attrs = node.inputs, node.typed(PoolAttrs)
        sizes = w.shape(x)[1:3]
        pads, value = attrs.pads(sizes), w.get(x)
        padding = padding_of(sizes, attrs.ksize, attrs.strides, (1, 1), pads)
        if padding is None:
            if edge is None:
                raise UnsupportedError(
                    f"TFLite's pools do not have the padding {pads}", node=node.name
                )
            value, padding = _padded(w, value, pads, edge, node), "VALID"
        return w.operator(
            op, [value], node, "Pool2DOptions", shape=w.shape(node.name),
            Padding=w.model.enum("Padding", padding),
            FilterHeight=attrs.ksize[0], FilterWidth=attrs.ksize[1],
            StrideH=attrs.strides[0], StrideW=attrs.strides[1],
        )  # fmt: skip

    return lower


def _padded(w: FloatWriter, value: int, pads: Pads, edge: float, node: Node) -> int:
    paddings = ((0, 0), *pads, (0, 0))
    shape = [n + sum(p) for n, p in zip(w.shapes[value], paddings, strict=True)]
    inputs = [value, w.integers(paddings, f"{node.name}/pads")]
    inputs.append(w.constant(np.array([edge], np.float32), f"{node.name}/edge"))
    return w.operator("PADV2", inputs, node, "PadV2Options", shape=shape)


def _conv2d(w: FloatWriter, node: Node) -> int:
    """Filters [height, width, inputs, outputs] are [outputs, height, width, inputs] in TFLite."""
    filters = _filters(w, node)
    if filters.shape[2] != w.shape(node.inputs[0])[3]:
        raise UnsupportedError("TFLM has no convolution in groups", node=node.name)
    return _window(w, node, "CONV_2D", filters.transpose(3, 0, 1, 2), "Conv2DOptions")


def _depthwise_conv2d(w: FloatWriter, node: Node) -> int:
    filters = _filters(w, node)
    held, multiplier = filters.reshape(1, *filters.shape[:2], -1), filters.shape[3]
    return _window(w, node, "DEPTHWISE_CONV_2D", held, "DepthwiseConv2DOptions", multiplier)


def _filters(w: FloatWriter, node: Node) -> Array:
    filters = w.graph.constant(node.inputs[1])
    if filters is None:
        raise UnsupportedError("its filters are computed, not constant", node=node.name)
    return filters


def _window(
    w: FloatWriter,
    node: Node,
    op: str,
    filters: Array,
    options: str,
    multiplier: int | None = None,
) -> int:
    """multiplier: of a depthwise convolution."""
    attrs, value, sizes = node.typed(ConvAttrs), w.get(node.inputs[0]), w.shape(node.inputs[0])[1:3]
    kernel = (filters.shape[1], filters.shape[2])
    pads = explicit_pads(sizes, kernel, attrs.strides, attrs.dilations, attrs.padding)
    padding = padding_of(sizes, kernel, attrs.strides, attrs.dilations, pads)
    if padding is None:
        value, padding = _padded(w, value, pads, 0, node), "VALID"
    shape = w.shape(node.name)
    inputs = [value, w.constant(filters, node.inputs[1])]
    inputs.append(w.constant(np.zeros(shape[3], np.float32), f"{node.name}/zeros"))
    return w.operator(
        op, inputs, node, options, 2, shape=shape, Padding=w.model.enum("Padding", padding),
        StrideH=attrs.strides[0], StrideW=attrs.strides[1],
        DilationHFactor=attrs.dilations[0], DilationWFactor=attrs.dilations[1],
        more={} if multiplier is None else {"DepthMultiplier": multiplier},
    )  # fmt: skip


def _layer_norm(w: FloatWriter, node: Node) -> int:
    x, gamma, beta = (w.get(value) for value in node.inputs)
    centred = w.binary("SUB", x, _row_mean(w, x, node), node)
    variance = _row_mean(w, w.binary("MUL", centred, centred, node), node)
    scaled = w.binary("MUL", centred, _inverse_deviation(w, variance, node), node)
    return w.binary("ADD", w.binary("MUL", scaled, gamma, node), beta, node)


def _row_mean(w: FloatWriter, x: int, node: Node) -> int:
    *rows, _ = w.shapes[x]
    inputs = [x, w.integers([len(rows)], f"{node.name}/axes")]
    return w.operator("MEAN", inputs, node, "ReducerOptions", 2, shape=(*rows, 1), KeepDims=True)


def _inverse_deviation(w: FloatWriter, variance: int, node: Node) -> int:
    epsilon = w.number(node.typed(NormAttrs).epsilon, node.name)
    return w.unary("RSQRT", w.binary("ADD", variance, epsilon, node), node)


def _batch_norm(w: FloatWriter, node: Node) -> int:
    x, gamma, beta, mean, variance = (w.get(value) for value in node.inputs)
    factor = w.binary("MUL", gamma, _inverse_deviation(w, variance, node), node)
    scaled = w.binary("MUL", w.binary("SUB", x, mean, node), factor, node)
    return w.binary("ADD", scaled, beta, node)


REDUCTIONS_AND_LAYERS: Mapping[str, FloatLower] = {
    "mean": _reduction("MEAN"),
    "sum": _reduction("SUM"),
    "reduce_max": _reduction("REDUCE_MAX"),
    "argmax": _argmax,
    "softmax": _softmax("SOFTMAX", "SoftmaxOptions", 1.0),
    "log_softmax": _softmax("LOG_SOFTMAX", "LogSoftmaxOptions"),
    "matmul": _matmul,
    "batch_matmul": _matmul,
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise_conv2d,
    "max_pool": _pool("MAX_POOL_2D", LOWEST),
    "avg_pool": _pool("AVERAGE_POOL_2D"),
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
}
