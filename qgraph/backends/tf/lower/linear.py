"""Convolutions, matrix products, pools and reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.backends.tf.builder import DType
from qgraph.backends.tf.emission import Emission
from qgraph.backends.tf.lower.base import Lower, simple, strided_slice
from qgraph.backends.tf.lower.dilated import space_to_batch, spread_filter
from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Attrs, Node
from qgraph.ir.ops.attributes import SlidingAttrs
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.ops.pool import ArgmaxAttrs, PoolAttrs, ReductionAttrs
from qgraph.ir.ops.windows import PaddingRule, explicit_pads
from qgraph.ops.attribute_types import Pads


def _pad_spatial(
    e: Emission,
    node: Node,
    x: str,
    pads: Sequence[tuple[int, int]],
    dtype: str,
    fill: float | None = None,
) -> str:
    paddings = e.builder.const(np.array([(0, 0), *pads, (0, 0)], np.int32), f"{node.name}/paddings")
    types = {"T": DType(dtype), "Tpaddings": DType("int32")}
    if fill is None:
        return e.builder.add("Pad", f"{node.name}/pad", [x, paddings], **types)
    return e.builder.add(
        "PadV2", f"{node.name}/pad", [x, paddings, e.builder.scalar(fill, dtype)], **types
    )


# After a convolution with a free batch, Grappler of TensorFlow 2.21 moves products with constants
# into the filter, uses shapes that are no longer valid, and crashes the process. It does not change
# nodes with this mark.
FIXED = {"_grappler_do_not_remove": True}


def _padding(node: Node) -> tuple[str, Pads | None]:
    padding = node.typed(SlidingAttrs).padding
    if isinstance(padding, str):
        return padding.upper(), None
    return "VALID", padding if padding != ((0, 0), (0, 0)) else None


def _onednn_errs(e: Emission, node: Node) -> bool:
    """Whether TensorFlow 2.21 with oneDNN computes a float32 convolution wrongly.

    Seen with one channel, strides like (1, 2), a result of width 1 and more than one image. The
    results are wrong by more than rounding. float64 uses another kernel.
    """
    filters, strides = e.graph.types[node.inputs[1]].shape or (), node.typed(ConvAttrs).strides
    return filters[2] == 1 and strides[0] != strides[1]


def _conv2d(e: Emission, node: Node) -> str:
    if _onednn_errs(e, node):
        e.dtypes[node.name] = "float64"
    dtype = e.dtypes[node.name]
    x, w = (e.tensor(v, dtype) for v in node.inputs)
    window, (mode, pads) = node.typed(ConvAttrs), _padding(node)
    attrs = {
        "T": DType(dtype),
        "strides": (1, *window.strides, 1),
        "dilations": (1, *window.dilations, 1),
        "padding": mode,
        **FIXED,
    }
    if window.dilations != (1, 1) and node.inputs[1] not in e.constants:
        attrs["dilations"] = (1, 1, 1, 1)
        _, high, wide, _ = e.graph.types[node.inputs[0]].shape or (None,) * 4
        if high is not None and wide is not None:
            attrs |= {"strides": (1, 1, 1, 1), "padding": "VALID"}

            def convolve(phases: str) -> str:
                return _convolve(e, node, f"{node.name}/phases", phases, w, attrs)

            return space_to_batch(e, node, x, (high, wide), dtype, convolve)
        w = spread_filter(e, node, w, _sizes(e, node.inputs[1]), dtype)
    if pads is not None:
        x = _pad_spatial(e, node, x, pads, dtype)
    return _convolve(e, node, node.name, x, w, attrs)


def _convolve(e: Emission, node: Node, name: str, x: str, w: str, attrs: Attrs) -> str:
    """TensorFlow's CPU kernels do not support groups: split, convolve, concatenate."""
    channels = (e.graph.types[node.inputs[0]].shape or (None,))[-1]
    taken = (e.graph.types[node.inputs[1]].shape or (None,) * 4)[2]
    groups = 1 if channels is None or taken is None else channels // taken
    if groups == 1:
        return e.builder.add("Conv2D", name, [x, w], **attrs)
    axis = e.builder.scalar(3, "int32")
    split = {"T": attrs["T"], "num_split": groups}
    xs = e.builder.add("Split", f"{name}/split", [axis, x], **split)
    ws = e.builder.add("Split", f"{name}/filters", [axis, w], **split)
    parts = [
        e.builder.add(
            "Conv2D",
            f"{name}/group",
            [f"{xs}:{i}" if i else xs, f"{ws}:{i}" if i else ws],
            **attrs,
        )
        for i in range(groups)
    ]
    return e.builder.add(
        "ConcatV2", name, [*parts, axis], T=attrs["T"], Tidx=DType("int32"), N=groups
    )


def _depthwise(e: Emission, node: Node) -> str:
    """TensorFlow's depthwise kernel supports no dilation, unequal strides or explicit padding.

    A dilated filter is the same filter with zeros between its taps; for an unequal stride, some
    results of stride 1 are selected. Both are exact.
    With one channel, it is written as a convolution: otherwise TensorFlow 2.21 with oneDNN confuses
    the prepared primitives of the two kinds, if their sizes are the same, and fails.
    """
    if (e.graph.types[node.inputs[1]].shape or (0, 0, 0))[2] == 1:
        return _conv2d(e, node)
    dtype = e.dtypes[node.name]
    x = e.tensor(node.inputs[0], dtype)
    w = e.tensor(node.inputs[1], dtype)
    window = node.typed(ConvAttrs)
    strides, dilations = window.strides, window.dilations
    mode, pads = _padding(node)
    filters = _sizes(e, node.inputs[1])
    even = strides[0] == strides[1]
    if dilations != (1, 1):
        w = spread_filter(e, node, w, filters, dtype)
    if not even and mode == "SAME":
        _, high, wide, _ = e.graph.types[node.inputs[0]].shape or (None,) * 4
        if high is None or wide is None:
            raise UnsupportedError("unequal strides need a known image size", node=node.name)
        kernel = filters[0], filters[1]
        mode, pads = (
            "VALID",
            explicit_pads((high, wide), kernel, strides, dilations, PaddingRule.SAME),
        )
    if pads is not None:
        x = _pad_spatial(e, node, x, pads, dtype)
    step = strides[0] if even else 1
    name = node.name if even else f"{node.name}/every"
    y = e.builder.add(
        "DepthwiseConv2dNative",
        name,
        [x, w],
        T=DType(dtype),
        strides=(1, step, step, 1),
        padding=mode,
    )
    return (
        y
        if even
        else strided_slice(
            e, node.name, y, [None, None, None, None], [None] * 4, [1, *strides, 1], dtype
        )
    )


def _sizes(e: Emission, value: str) -> tuple[int, ...]:
    """The shape of a value whose sizes are all known, such as weights."""
    sizes = tuple(size for size in e.graph.types[value].shape or () if size is not None)
    assert len(sizes) == e.graph.types[value].rank, value
    return sizes


def _pool(op: str) -> Lower:
    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        x = e.tensor(node.inputs[0], dtype)
        mode, pads = _padding(node)
        if pads is not None:
            if op == "AvgPool":
                raise UnsupportedError(
                    "an average pool with explicit padding is not supported", node=node.name
                )
            x = _pad_spatial(e, node, x, pads, dtype, float(np.finfo(dtype).min))
        window = node.typed(PoolAttrs)
        ksize, strides = (1, *window.ksize, 1), (1, *window.strides, 1)
        return e.builder.add(
            op, node.name, [x], T=DType(dtype), ksize=ksize, strides=strides, padding=mode
        )

    return lower


def _reduce(op: str) -> Lower:
    def lower(e: Emission, node: Node) -> str:
        attrs, dtype = node.typed(ReductionAttrs), e.dtypes[node.name]
        axes = e.builder.const(np.array(attrs.axes, np.int32), f"{node.name}/axes")
        return e.builder.add(
            op, node.name, [e.tensor(node.inputs[0], dtype), axes],
            T=DType(dtype), Tidx=DType("int32"), keep_dims=attrs.keepdims,
        )  # fmt: skip

    return lower


def _argmax(e: Emission, node: Node) -> str:
    attrs = node.typed(ArgmaxAttrs)
    axis = e.builder.scalar(attrs.axis, "int32")
    types = {"T": DType(e.type_name(node.inputs[0])), "Tidx": DType("int32")}
    inputs, made = [e.tensor(node.inputs[0]), axis], DType(attrs.dtype)
    return e.builder.add("ArgMax", node.name, inputs, output_type=made, **types)


LINEAR: Mapping[str, Lower] = {
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise,
    "matmul": simple("MatMul"),
    "batch_matmul": simple("BatchMatMulV2"),
    "bias_add": simple("BiasAdd"),
    "max_pool": _pool("MaxPool"),
    "avg_pool": _pool("AvgPool"),
    "mean": _reduce("Mean"),
    "sum": _reduce("Sum"),
    "reduce_max": _reduce("Max"),
    "argmax": _argmax,
}
