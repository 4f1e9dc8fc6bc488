"""Ops that move values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.backends.onnx.builder import element_type
from qgraph.backends.onnx.emission import END
from qgraph.backends.onnx.floats.elementwise import Lower
from qgraph.backends.onnx.floats.emission import FloatEmission
from qgraph.backends.onnx.floats.layers import keeps_order
from qgraph.ir.graph import Node
from qgraph.ir.ops import blocks, movement
from qgraph.ir.ops.attributes import AxesAttrs, AxisAttrs
from qgraph.ir.ops.movement import PadMode
from qgraph.ops.attribute_types import Pair
from qgraph.ops.movement import TO_NCHW, TO_NHWC, TakeAttrs, TransposeAttrs

POOLS = ("max_pool", "avg_pool")


def _identity(e: FloatEmission, node: Node) -> None:
    e.alias(node.name, node.inputs[0])


def _concat(e: FloatEmission, node: Node) -> None:
    nchw = e.common_layout(*node.inputs)
    e.shape(node.inputs[0], node)
    (axis,) = e.axes([node.typed(AxisAttrs).axis], node.inputs[0], nchw)
    inputs = [e.get(value, nchw) for value in node.inputs]
    e.put(node.name, e.op("Concat", *inputs, stem=node.name, axis=axis), nchw)


def _pad(e: FloatEmission, node: Node) -> None:
    (x,), attrs = node.inputs, node.typed(movement.PaddingAttrs)
    mode, paddings = attrs.mode, attrs.paddings
    shape = e.shape(x, node)
    too_wide = [d is not None and max(p) >= d for d, p in zip(shape, paddings, strict=True)]
    if mode is PadMode.SYMMETRIC or (mode is PadMode.REFLECT and any(too_wide)):
        _mirrored(e, node, mode, paddings)
        return
    nchw = e.made_nchw(x)
    pairs = [paddings[axis] for axis in TO_NCHW] if nchw else paddings
    ends = [before for before, _ in pairs] + [after for _, after in pairs]
    inputs = [e.get(x, nchw), e.numbers(ends, f"{node.name}/pads")]
    if mode is PadMode.CONSTANT:
        inputs.append(e.scalar(_fill(e, node), x))
    e.put(node.name, e.op("Pad", *inputs, stem=node.name, mode=mode), nchw)


def _fill(e: FloatEmission, node: Node) -> float:
    """Value of the padding. Before a pool, it is a zero that ONNX Runtime does not recognize.

    ONNX Runtime merges a Pad with 0 into a later MaxPool, whose padding is the smallest value
    instead of 0.
    """
    value = node.typed(movement.PaddingAttrs).value
    pooled = any(user.op in POOLS for user in e.graph.users(node.name))
    return -0.0 if value == 0 and pooled and e.types[node.name].is_float else value


def _mirrored(e: FloatEmission, node: Node, mode: str, paddings: Sequence[Pair]) -> None:
    """Padding that ONNX does not have, axis by axis, from the source index of each element."""
    (x,) = node.inputs
    nchw = e.made_nchw(x)
    name = e.get(x, nchw)
    for axis, pair in enumerate(paddings):
        if any(pair):
            (size,), (place,) = e.sizes(x, (axis,), node), e.axes([axis], x, nchw)
            places = np.pad(np.arange(size), pair, mode=mode)  # type: ignore[call-overload]
            indices = e.numbers(places, f"{node.name}/places")
            name = e.op("Gather", name, indices, stem=node.name, axis=place)
    e.put(node.name, name, nchw)


def _reshape(e: FloatEmission, node: Node) -> None:
    shape = np.array(node.typed(movement.TargetAttrs).shape, np.int64).reshape(-1)
    inputs = [e.get(node.inputs[0]), e.numbers(shape, f"{node.name}/shape")]
    empty = {"allowzero": 1} if (shape == 0).any() else {}
    e.put(node.name, e.op("Reshape", *inputs, stem=node.name, **empty))


def _transpose(e: FloatEmission, node: Node) -> None:
    (x,), perm = node.inputs, node.typed(TransposeAttrs).perm
    varies = x not in e.constants
    if perm == TO_NHWC and varies:
        e.put(node.name, e.get(x), nchw=True)  # the input is already the result in NCHW
    elif perm == TO_NCHW and varies:
        e.put(node.name, e.get(x, nchw=True))
    else:
        e.put(node.name, e.op("Transpose", e.get(x), stem=node.name, perm=perm))


def _slice(e: FloatEmission, node: Node) -> None:
    (x,) = node.inputs
    nchw = e.made_nchw(x)
    e.shape(x, node)
    attrs, cuts = node.typed(movement.PartAttrs), []
    parts = zip(attrs.begin, attrs.end, attrs.strides, strict=True)
    for axis, (begin, end, stride) in enumerate(parts):
        step = 1 if stride is None else stride
        first, last = (0, END.max) if step > 0 else (END.max, END.min)
        if (begin or 0, end, step) != (0, None, 1):
            (place,) = e.axes([axis], x, nchw)
            cuts.append(
                (first if begin is None else begin, last if end is None else end, place, step)
            )
    if not cuts:
        e.alias(node.name, x)
        return
    columns = [e.numbers(column, f"{node.name}/cut") for column in zip(*cuts, strict=True)]
    e.put(node.name, e.op("Slice", e.get(x, nchw), *columns, stem=node.name), nchw)


def _squeeze(e: FloatEmission, node: Node) -> None:
    (x,) = node.inputs
    rank = len(e.shape(x, node))
    axes = sorted({axis % rank for axis in node.typed(AxesAttrs).axes})
    if not axes:
        e.alias(node.name, x)
        return
    nchw = e.made_nchw(x) and keeps_order(axes)
    where = e.numbers(sorted(e.axes(axes, x, nchw)), f"{node.name}/axes")
    e.put(node.name, e.op("Squeeze", e.get(x, nchw), where, stem=node.name))


def _expand_dims(e: FloatEmission, node: Node) -> None:
    (x,) = node.inputs
    axis = node.typed(AxisAttrs).axis % (len(e.shape(x, node)) + 1)
    where = e.numbers([axis], f"{node.name}/axes")
    e.put(node.name, e.op("Unsqueeze", e.get(x), where, stem=node.name))


def _take(e: FloatEmission, node: Node) -> None:
    (x,), attrs = node.inputs, node.typed(TakeAttrs)
    nchw = e.made_nchw(x)
    (place,) = e.axes([attrs.axis], x, nchw)
    indices = e.numbers(attrs.indices, f"{node.name}/indices")
    e.put(node.name, e.op("Gather", e.get(x, nchw), indices, stem=node.name, axis=place), nchw)


def _embedding(e: FloatEmission, node: Node) -> None:
    table, indices = node.inputs
    held = e.get(indices)
    if e.graph.types[indices].dtype not in ("int32", "int64"):
        held = e.op("Cast", held, stem=f"{node.name}/index", to=element_type("int64"))
    e.put(node.name, e.op("Gather", e.get(table), held, stem=node.name, axis=0))


def _resize_nearest(e: FloatEmission, node: Node) -> None:
    """By factors if these are powers of two, which all runtimes compute exactly; otherwise by the
    source index of each element, because runtimes round it differently.
    """
    (x,), attrs = node.inputs, node.typed(movement.ResizeAttrs)
    sizes, corners, half = attrs.size, attrs.align_corners, attrs.half_pixel
    known = e.sizes(x, (1, 2), node)
    factors = [new / old for new, old in zip(sizes, known, strict=True)]
    name = e.get(x, nchw=True)
    if not corners and all(np.log2(f).is_integer() and f >= 1 for f in factors):
        mode = ("half_pixel", "round_prefer_ceil") if half else ("asymmetric", "floor")
        scales = e.numbers((1, 1, *factors), f"{node.name}/scales", np.float32)
        made = e.op(
            "Resize", name, "", scales, stem=node.name, mode="nearest",
            coordinate_transformation_mode=mode[0], nearest_mode=mode[1],
        )  # fmt: skip
        e.put(node.name, made, nchw=True)
        return
    for axis, (old, new) in enumerate(zip(known, sizes, strict=True), start=2):
        places = e.numbers(movement.nearest(old, new, corners, half), f"{node.name}/places")
        name = e.op("Gather", name, places, stem=node.name, axis=axis)
    e.put(node.name, name, nchw=True)


def _space_to_depth(e: FloatEmission, node: Node) -> None:
    name = e.get(node.inputs[0], nchw=True)
    block = node.typed(blocks.BlockAttrs).block
    e.put(node.name, e.op("SpaceToDepth", name, stem=node.name, blocksize=block), nchw=True)


def _depth_to_space(e: FloatEmission, node: Node) -> None:
    name = e.get(node.inputs[0], nchw=True)
    block = node.typed(blocks.BlockAttrs).block
    made = e.op("DepthToSpace", name, stem=node.name, blocksize=block, mode="DCR")
    e.put(node.name, made, nchw=True)


def _space_to_batch(e: FloatEmission, node: Node) -> None:
    (x,), attrs = node.inputs, node.typed(blocks.SpaceToBatchAttrs)
    (down, across), ((top, bottom), (left, right)) = attrs.block, attrs.paddings
    height, width, channels = e.sizes(x, (1, 2, 3), node)
    height, width = height + top + bottom, width + left + right
    pads = e.numbers((0, top, left, 0, 0, bottom, right, 0), f"{node.name}/pads")
    name = e.op("Pad", e.get(x), pads, stem=f"{node.name}/padded")
    apart = (-1, height // down, down, width // across, across, channels)
    name = _in_shape(e, node, name, apart)
    name = e.op("Transpose", name, stem=f"{node.name}/turned", perm=(2, 4, 0, 1, 3, 5))
    shape = (-1, height // down, width // across, channels)
    e.put(node.name, _in_shape(e, node, name, shape))


def _batch_to_space(e: FloatEmission, node: Node) -> None:
    (x,), attrs = node.inputs, node.typed(blocks.BatchToSpaceAttrs)
    (down, across), ((top, bottom), (left, right)) = attrs.block, attrs.crops
    height, width, channels = e.sizes(x, (1, 2, 3), node)
    name = _in_shape(e, node, e.get(x), (down, across, -1, height, width, channels))
    name = e.op("Transpose", name, stem=f"{node.name}/turned", perm=(2, 3, 0, 4, 1, 5))
    name = _in_shape(e, node, name, (-1, height * down, width * across, channels))
    cuts = ((top, left), (height * down - bottom, width * across - right), (1, 2))
    columns = [e.numbers(column, f"{node.name}/cut") for column in cuts]
    e.put(node.name, e.op("Slice", name, *columns, stem=node.name))


def _in_shape(e: FloatEmission, node: Node, name: str, shape: tuple[int, ...]) -> str:
    return e.op("Reshape", name, e.numbers(shape, f"{node.name}/shape"), stem=f"{node.name}/moved")


MOVES: Mapping[str, Lower] = {
    "identity": _identity,
    "concat": _concat,
    "pad": _pad,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "take": _take,
    "embedding": _embedding,
    "resize_nearest": _resize_nearest,
    "space_to_depth": _space_to_depth,
    "depth_to_space": _depth_to_space,
    "space_to_batch": _space_to_batch,
    "batch_to_space": _batch_to_space,
}
