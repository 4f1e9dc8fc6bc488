"""Layers with weights, pools, norms and reductions."""

from __future__ import annotations

from collections.abc import Mapping

from qgraph.backends.onnx.floats.elementwise import Lower, elementwise, of_floats
from qgraph.backends.onnx.floats.emission import SIZES_HINT, FloatEmission
from qgraph.backends.onnx.layouts import axis_in
from qgraph.errors import UnsupportedError
from qgraph.foreign import AttrValue
from qgraph.ir.graph import Node
from qgraph.ir.ops.attributes import AxisAttrs, SlidingAttrs
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.ops.norm import NormAttrs
from qgraph.ir.ops.pool import ArgmaxAttrs, PoolAttrs, ReductionAttrs
from qgraph.ir.ops.windows import PaddingRule, explicit_pads

OIHW = (3, 2, 0, 1)  # of filters [height, width, inputs, outputs]
NO_DILATION = (1, 1)


def window(e: FloatEmission, node: Node, kernel: tuple[int, ...]) -> dict[str, AttrValue]:
    """Attributes that convolutions and pools share."""
    attrs = node.typed(SlidingAttrs)
    strides, padding, dilations = attrs.strides, attrs.padding, NO_DILATION
    made: dict[str, AttrValue] = {"kernel_shape": kernel, "strides": strides}
    if isinstance(attrs, ConvAttrs):
        made["dilations"] = dilations = attrs.dilations
    sizes = e.shape(node.inputs[0], node)[1:3]
    if padding is PaddingRule.SAME and any(
        d is None and s != 1 for d, s in zip(sizes, strides, strict=True)
    ):
        if dilations != NO_DILATION:
            raise UnsupportedError(
                "a dilated window with strides over an open size has unknown padding",
                node=node.name,
                hint=SIZES_HINT,
            )
        return {**made, "auto_pad": "SAME_UPPER"}
    # With stride 1 padding is the same for every size.
    known = tuple(1 if size is None else size for size in sizes)
    pads = explicit_pads(known, kernel[:2], strides, dilations, padding)  # type: ignore[arg-type]
    (top, bottom), (left, right) = pads
    return {**made, "pads": (top, left, bottom, right)}


def _layer(e: FloatEmission, node: Node, op: str, inputs: list[str], **attrs: AttrValue) -> None:
    """A layer, together with the bias that follows it alone."""
    bias, value = e.fused.get(node.name), node.name
    if bias is not None:
        value = bias.name
        inputs = [*inputs, e.numbers(e.bias_of(node), bias.inputs[1], e.dtype(value))]
    e.put(value, e.op(op, *inputs, stem=value, **attrs), nchw=op == "Conv")


def _conv2d(e: FloatEmission, node: Node) -> None:
    x, w = node.inputs
    height, width, taken, _ = e.sizes(w, (0, 1, 2, 3), node)
    # An open number of channels means one group: runtimes refuse a filter that does not fit.
    channels = e.shape(x, node)[3] or taken
    inputs = [e.get(x, nchw=True), _turned_filter(e, w)]
    attrs = window(e, node, (height, width))
    _layer(e, node, "Conv", inputs, group=channels // taken, **attrs)


def _depthwise_conv2d(e: FloatEmission, node: Node) -> None:
    """Filters [height, width, channels, multiplier]: a group for each channel."""
    x, w = node.inputs
    height, width, channels, multiplier = e.sizes(w, (0, 1, 2, 3), node)
    shape = (height, width, 1, channels * multiplier)
    if w in e.constants:
        array = e.constants[w].reshape(shape).transpose(OIHW)
        filters = e.model.constant(array, w)
    else:
        flat = e.op("Reshape", e.get(w), e.numbers(shape, f"{w}/shape"), stem=f"{w}/flat")
        filters = e.op("Transpose", flat, stem=f"{w}/OIHW", perm=OIHW)
    inputs = [e.get(x, nchw=True), filters]
    _layer(e, node, "Conv", inputs, group=channels, **window(e, node, (height, width)))


def _turned_filter(e: FloatEmission, w: str) -> str:
    if w in e.constants:
        return e.model.constant(e.constants[w].transpose(OIHW), w)
    return e.op("Transpose", e.get(w), stem=f"{w}/OIHW", perm=OIHW)


def _matmul(e: FloatEmission, node: Node) -> None:
    op = "Gemm" if node.name in e.fused else "MatMul"
    _layer(e, node, op, [e.get(value) for value in node.inputs])


def _batch_matmul(e: FloatEmission, node: Node) -> None:
    e.put(node.name, e.op("MatMul", *map(e.get, node.inputs), stem=node.name))


def _bias_add(e: FloatEmission, node: Node) -> None:
    if node.name in e.held:  # its layer has it
        return
    elementwise(lambda e, node, *names: e.op("Add", *names, stem=node.name))(e, node)


def _pool(op: str, **attrs: AttrValue) -> Lower:
    def lower(e: FloatEmission, node: Node) -> None:
        x, kernel = node.inputs[0], node.typed(PoolAttrs).ksize
        made = {**window(e, node, kernel), **attrs}
        if op == "AveragePool" and max(made.get("pads", (0,))) >= min(kernel):
            raise UnsupportedError(
                f"padding {node.typed(PoolAttrs).padding} is not smaller than the window {kernel}",
                node=node.name,
            )
        e.put(node.name, e.op(op, e.get(x, nchw=True), stem=node.name, **made), nchw=True)

    return lower


def keeps_order(axes: list[int]) -> bool:
    """True if the remaining axes have the same order in both layouts."""
    left = [axis_in(axis, True) for axis in range(4) if axis not in axes]
    return left == sorted(left)


def _reduce(op: str) -> Lower:
    def lower(e: FloatEmission, node: Node) -> None:
        attrs, x = node.typed(ReductionAttrs), node.inputs[0]
        keepdims, rank = attrs.keepdims, len(e.shape(x, node))
        axes = sorted(axis % rank for axis in attrs.axes)
        if not axes:
            e.alias(node.name, x)
            return
        nchw = e.made_nchw(x) and (keepdims or keeps_order(axes))
        where = e.numbers(sorted(e.axes(axes, x, nchw)), f"{node.name}/axes")
        made = e.op(op, e.get(x, nchw), where, stem=node.name, keepdims=int(keepdims))
        e.put(node.name, made, nchw and keepdims)

    return lower


def _argmax(e: FloatEmission, node: Node) -> None:
    attrs, x = node.typed(ArgmaxAttrs), node.inputs[0]
    axis = attrs.axis % len(e.shape(x, node))
    nchw = e.made_nchw(x) and keeps_order([axis])
    (where,) = e.axes([axis], x, nchw)
    made = e.op("ArgMax", e.get(x, nchw), stem=node.name, axis=where, keepdims=0)
    if attrs.dtype != "int64":
        made = e.cast(made, attrs.dtype, f"{node.name}/{attrs.dtype}")
    e.put(node.name, made)


def _softmax(op: str) -> Lower:
    def lower(e: FloatEmission, node: Node) -> None:
        x = node.inputs[0]
        nchw = e.made_nchw(x)
        rank = len(e.shape(x, node))
        (axis,) = e.axes([node.typed(AxisAttrs).axis % rank], x, nchw)
        e.put(node.name, e.op(op, e.get(x, nchw), stem=node.name, axis=axis), nchw)

    return lower


def _batch_norm(e: FloatEmission, node: Node) -> None:
    x, *statistics = node.inputs
    rank = len(e.shape(x, node))
    names = [e.get(value) for value in statistics]
    epsilon = node.typed(NormAttrs).epsilon
    if rank in (2, 4):
        inputs = [e.get(x, nchw=rank == 4), *names]
        made = e.op("BatchNormalization", *inputs, stem=node.name, epsilon=epsilon)
        e.put(node.name, made, nchw=rank == 4)
        return
    gamma, beta, mean, variance = names

    def op(name: str, *inputs: str) -> str:
        return e.op(name, *inputs, stem=f"{node.name}/{name.lower()}")

    deviation = op("Sqrt", op("Add", variance, e.scalar(epsilon, statistics[-1])))
    scaled = op("Mul", op("Sub", e.get(x), mean), op("Div", gamma, deviation))
    e.put(node.name, e.op("Add", scaled, beta, stem=node.name))


def _layer_norm(e: FloatEmission, node: Node) -> None:
    names, epsilon = [e.get(value) for value in node.inputs], node.typed(NormAttrs).epsilon
    made = e.op("LayerNormalization", *names, stem=node.name, axis=-1, epsilon=epsilon)
    e.put(node.name, made)


LAYERS: Mapping[str, Lower] = {
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise_conv2d,
    "matmul": _matmul,
    "batch_matmul": _batch_matmul,
    "bias_add": _bias_add,
    "max_pool": of_floats(_pool("MaxPool")),
    "avg_pool": of_floats(_pool("AveragePool", count_include_pad=0)),
    "mean": of_floats(_reduce("ReduceMean")),
    "sum": _reduce("ReduceSum"),
    "reduce_max": _reduce("ReduceMax"),
    "argmax": _argmax,
    "softmax": _softmax("Softmax"),
    "log_softmax": _softmax("LogSoftmax"),
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
}
