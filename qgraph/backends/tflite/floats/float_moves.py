"""Float ops that move values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.backends.tflite.floats.float_writer import FloatLower, FloatWriter
from qgraph.backends.tflite.floats.reductions_and_layers import transposed
from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Node
from qgraph.ir.ops import blocks, movement
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.ops.movement import PadMode
from qgraph.ops.movement import TakeAttrs, TransposeAttrs


def _identity(w: FloatWriter, node: Node) -> int:
    return w.get(node.inputs[0])


def _reshape(w: FloatWriter, node: Node) -> int:
    kind = w.dtype(node.name)
    return w.reshaped(w.get(node.inputs[0]), w.shape(node.name), node, kind)


def _transpose(w: FloatWriter, node: Node) -> int:
    perm = [*node.typed(TransposeAttrs).perm]
    return transposed(w, w.get(node.inputs[0]), perm, node, w.dtype(node.name))


def _concat(w: FloatWriter, node: Node) -> int:
    inputs = [w.get(value) for value in node.inputs]
    axis = node.typed(AxisAttrs).axis % len(w.shape(node.name))
    return w.operator(
        "CONCATENATION", inputs, node, "ConcatenationOptions", shape=w.shape(node.name),
        dtype=w.dtype(node.name), Axis=axis,
    )  # fmt: skip


def _slice(w: FloatWriter, node: Node) -> int:
    (x,), attrs = node.inputs, node.typed(movement.PartAttrs)
    parts = [*zip(attrs.begin, attrs.end, attrs.strides, strict=True)]
    open_begins = sum(1 << i for i, (begin, _, _) in enumerate(parts) if begin is None)
    open_ends = sum(1 << i for i, (_, end, _) in enumerate(parts) if end is None)
    columns = [
        w.integers([column if column is not None else other for column in held], node.name)
        for held, other in zip(zip(*parts, strict=True), (0, 0, 1), strict=True)
    ]
    return w.operator(
        "STRIDED_SLICE", [w.get(x), *columns], node, "StridedSliceOptions",
        shape=w.shape(node.name), dtype=w.dtype(node.name),
        BeginMask=open_begins, EndMask=open_ends,
    )  # fmt: skip


def _pad(w: FloatWriter, node: Node) -> int:
    (x,), attrs = node.inputs, node.typed(movement.PaddingAttrs)
    pads, shape = w.integers(attrs.paddings, f"{node.name}/pads"), w.shape(node.name)
    if attrs.mode is PadMode.CONSTANT:
        inputs = [
            w.get(x),
            pads,
            w.constant(np.array([attrs.value], np.float32), f"{node.name}/edge"),
        ]
        return w.operator("PADV2", inputs, node, "PadV2Options", shape=shape)
    if attrs.mode not in (PadMode.REFLECT, PadMode.SYMMETRIC):
        raise UnsupportedError(f"TFLite has no padding of mode {attrs.mode}", node=node.name)
    kept = attrs.mode is PadMode.REFLECT
    sizes = zip(w.shape(x), attrs.paddings, strict=True)
    if any(max(pair) > size - kept for size, pair in sizes):
        raise UnsupportedError("its mirrored padding is wider than the tensor", node=node.name)
    mode = w.model.enum("MirrorPadMode", attrs.mode.upper())
    inputs = [w.get(x), pads]
    return w.operator("MIRROR_PAD", inputs, node, "MirrorPadOptions", shape=shape, Mode=mode)


def _take(w: FloatWriter, node: Node) -> int:
    (x,), attrs = node.inputs, node.typed(TakeAttrs)
    indices = w.integers(attrs.indices, f"{node.name}/indices")
    axis = attrs.axis % len(w.shape(x))
    return w.operator(
        "GATHER", [w.get(x), indices], node, "GatherOptions", 2, shape=w.shape(node.name),
        dtype=w.dtype(node.name), Axis=axis,
    )  # fmt: skip


def _embedding(w: FloatWriter, node: Node) -> int:
    table, indices = node.inputs
    held = w.get(indices)
    if w.dtype(indices) != "int32":
        shape = w.shape(indices)
        held = w.operator("CAST", [held], node, shape=shape, dtype="int32")
    inputs, shape = [w.get(table), held], w.shape(node.name)
    return w.operator("GATHER", inputs, node, "GatherOptions", 2, shape=shape, Axis=0)


def _resize_nearest(w: FloatWriter, node: Node) -> int:
    """By the source index of each element, because executors round them differently."""
    (x,), attrs = node.inputs, node.typed(movement.ResizeAttrs)
    value = w.get(x)
    sizes = zip(w.shape(x)[1:3], attrs.size, strict=True)
    for axis, (old, new) in enumerate(sizes, start=1):
        places = movement.nearest(old, new, attrs.align_corners, attrs.half_pixel)
        indices = w.integers(places, f"{node.name}/places")
        shape = [*w.shapes[value]]
        shape[axis] = new
        inputs = [value, indices]
        value = w.operator("GATHER", inputs, node, "GatherOptions", 2, shape=shape, Axis=axis)
    return value


def _block(op: str, options: str) -> FloatLower:
    def lower(w: FloatWriter, node: Node) -> int:
        block = node.typed(blocks.BlockAttrs).block
        inputs, shape = [w.get(node.inputs[0])], w.shape(node.name)
        return w.operator(op, inputs, node, options, shape=shape, BlockSize=block)

    return lower


MOVES: Mapping[str, FloatLower] = {
    "identity": _identity,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": _transpose,
    "concat": _concat,
    "slice": _slice,
    "pad": _pad,
    "take": _take,
    "embedding": _embedding,
    "resize_nearest": _resize_nearest,
    "space_to_depth": _block("SPACE_TO_DEPTH", "SpaceToDepthOptions"),
    "depth_to_space": _block("DEPTH_TO_SPACE", "DepthToSpaceOptions"),
}
