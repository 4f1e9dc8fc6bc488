"""Ops that move values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qgraph.backends.tf.builder import DType
from qgraph.backends.tf.emission import Emission
from qgraph.backends.tf.lower.base import Lower, simple, strided_slice
from qgraph.ir.graph import Node
from qgraph.ir.ops import blocks, movement
from qgraph.ir.ops.attributes import AxesAttrs, AxisAttrs
from qgraph.ops.movement import TakeAttrs, TransposeAttrs


def _with_const(op: str, values: Callable[[Node], object], dtype_attr: str) -> Lower:
    """An op whose second input is a constant int32 array."""

    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        second = e.builder.const(
            np.asarray(values(node), np.int32), f"{node.name}/{dtype_attr.lower()}"
        )
        attrs = {"T": DType(dtype), dtype_attr: DType("int32")}
        return e.builder.add(op, node.name, [e.tensor(node.inputs[0], dtype), second], **attrs)

    return lower


def _pad(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    attrs = node.typed(movement.PaddingAttrs)
    mode, value = attrs.mode, attrs.value
    paddings = e.builder.const(np.array(attrs.paddings, np.int32), f"{node.name}/paddings")
    inputs, types = (
        [e.tensor(node.inputs[0], dtype), paddings],
        {"T": DType(dtype), "Tpaddings": DType("int32")},
    )
    if mode != "constant":
        return e.builder.add("MirrorPad", node.name, inputs, mode=mode.upper(), **types)
    if not value:
        return e.builder.add("Pad", node.name, inputs, **types)
    return e.builder.add("PadV2", node.name, [*inputs, e.builder.scalar(value, dtype)], **types)


def _concat(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    axis = e.builder.scalar(node.typed(AxisAttrs).axis, "int32")
    inputs = [e.tensor(v, dtype) for v in node.inputs]
    if len(inputs) == 1:
        return e.builder.add("Identity", node.name, inputs, T=DType(dtype))
    return e.builder.add(
        "ConcatV2", node.name, [*inputs, axis], T=DType(dtype), Tidx=DType("int32"), N=len(inputs)
    )


def _slice(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    attrs = node.typed(movement.PartAttrs)
    begin, end, strides = list(attrs.begin), list(attrs.end), list(attrs.strides)
    return strided_slice(e, node.name, e.tensor(node.inputs[0], dtype), begin, end, strides, dtype)


def _squeeze(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    x = e.tensor(node.inputs[0], dtype)
    axes = node.typed(AxesAttrs).axes
    return e.builder.add("Squeeze", node.name, [x], T=DType(dtype), squeeze_dims=axes)


def _resize(e: Emission, node: Node) -> str:
    attrs, dtype = node.typed(movement.ResizeAttrs), e.dtypes[node.name]
    size = e.builder.const(np.array(attrs.size, np.int32), f"{node.name}/size")
    return e.builder.add(
        "ResizeNearestNeighbor", node.name, [e.tensor(node.inputs[0], dtype), size], T=DType(dtype),
        align_corners=attrs.align_corners,
        half_pixel_centers=attrs.half_pixel,
    )  # fmt: skip


def _take(e: Emission, node: Node) -> str:
    attrs, dtype = node.typed(TakeAttrs), e.dtypes[node.name]
    indices = e.builder.const(np.array(attrs.indices, np.int32), f"{node.name}/indices")
    inputs = [e.tensor(node.inputs[0], dtype), indices, e.builder.scalar(attrs.axis, "int32")]
    types = {"Tparams": DType(dtype), "Tindices": DType("int32"), "Taxis": DType("int32")}
    return e.builder.add("GatherV2", node.name, inputs, **types)


def _embedding(e: Emission, node: Node) -> str:
    """Indices outside of the table pick its first or last row, as in the integer program."""
    (table, indices), dtype = node.inputs, e.dtypes[node.name]
    shape, kind = e.graph.types[table].shape, e.type_name(indices)
    assert shape and shape[0] is not None, node.name
    ends = [e.builder.scalar(end, kind) for end in (0, shape[0] - 1)]
    x = e.tensor(indices, kind)
    limited = e.builder.add("ClipByValue", f"{node.name}/limited", [x, *ends], T=DType(kind))
    index = e.builder.add(
        "Cast", f"{node.name}/as_index", [limited], SrcT=DType(kind), DstT=DType("int32")
    )
    types = {"Tparams": DType(dtype), "Tindices": DType("int32"), "Taxis": DType("int32")}
    inputs = [e.tensor(table, dtype), index, e.builder.scalar(0, "int32")]
    return e.builder.add("GatherV2", node.name, inputs, **types)


def _block(op: str) -> Lower:
    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        x = e.tensor(node.inputs[0], dtype)
        block = node.typed(blocks.BlockAttrs).block
        return e.builder.add(op, node.name, [x], T=DType(dtype), block_size=block)

    return lower


def _batch_block(op: str, pads: str) -> Lower:
    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        attrs = node.attributes
        if isinstance(attrs, blocks.SpaceToBatchAttrs):
            sizes, ends = attrs.block, attrs.paddings
        else:
            cropped = node.typed(blocks.BatchToSpaceAttrs)
            sizes, ends = cropped.block, cropped.crops
        block = e.builder.const(np.array(sizes, np.int32), f"{node.name}/block")
        edges = e.builder.const(np.array(ends, np.int32), f"{node.name}/{pads}")
        types = {"T": DType(dtype), "Tblock_shape": DType("int32"), f"T{pads}": DType("int32")}
        return e.builder.add(
            op, node.name, [e.tensor(node.inputs[0], dtype), block, edges], **types
        )

    return lower


MOVEMENT: Mapping[str, Lower] = {
    "identity": simple("Identity"),
    "concat": _concat,
    "pad": _pad,
    "reshape": _with_const(
        "Reshape", lambda node: node.typed(movement.TargetAttrs).shape, "Tshape"
    ),
    "transpose": _with_const("Transpose", lambda node: node.typed(TransposeAttrs).perm, "Tperm"),
    "expand_dims": _with_const("ExpandDims", lambda node: node.typed(AxisAttrs).axis, "Tdim"),
    "squeeze": _squeeze,
    "slice": _slice,
    "take": _take,
    "embedding": _embedding,
    "resize_nearest": _resize,
    "space_to_depth": _block("SpaceToDepth"),
    "depth_to_space": _block("DepthToSpace"),
    "space_to_batch": _batch_block("SpaceToBatchND", "paddings"),
    "batch_to_space": _batch_block("BatchToSpaceND", "crops"),
}
