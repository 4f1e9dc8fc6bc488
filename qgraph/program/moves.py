"""Rules that write ops that only move values as reshape, transpose, slice, concat, pad and take."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops import blocks, movement
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.types import Codes
from qgraph.ops.movement import TakeAttrs, TransposeAttrs
from qgraph.ops.shapes import Sizes
from qgraph.program.writer import ProgramWriter, Rule


def _reshape(node: Node, writer: ProgramWriter) -> None:
    writer.step("reshape", node.inputs, node.name, shape=writer.shape(node.name))


def _transpose(node: Node, writer: ProgramWriter) -> None:
    writer.step("transpose", node.inputs, node.name, perm=node.typed(TransposeAttrs).perm)


def _slice(node: Node, writer: ProgramWriter) -> None:
    parts = zip(writer.shape(node.inputs[0]), node.typed(movement.PartAttrs).slices, strict=True)
    every = [_normal(size, part) for size, part in parts]
    begin, end, strides = (tuple(column) for column in zip(*every, strict=True))
    writer.step("slice", node.inputs, node.name, begin=begin, end=end, strides=strides)


def _normal(size: int, part: slice) -> tuple[int, int | None, int]:
    """The same slice from an existing position; its end is None if it includes the last one."""
    first, last, step = part.indices(size)
    whole = last >= size if step > 0 else last < 0
    return first, None if whole else last, step


def _concat(node: Node, writer: ProgramWriter) -> None:
    axis = node.typed(AxisAttrs).axis % len(writer.shape(node.name))
    writer.step("concat", node.inputs, node.name, axis=axis)


def _pad(node: Node, writer: ProgramWriter) -> None:
    attrs, sizes = node.typed(movement.PaddingAttrs), writer.shape(node.inputs[0])
    paddings, mode = attrs.paddings, attrs.mode
    if mode is movement.PadMode.CONSTANT:
        return writer.step("pad", node.inputs, node.name, paddings=paddings)
    axes = [
        (axis, movement.mirrored(np.arange(sizes[axis]), [pads], mode))
        for axis, pads in enumerate(paddings)
        if pads != (0, 0)
    ]
    return _takes(node, writer, axes)


def _resize(node: Node, writer: ProgramWriter) -> None:
    attrs, sizes = node.typed(movement.ResizeAttrs), writer.shape(node.inputs[0])
    flags, made = (attrs.align_corners, attrs.half_pixel), attrs.size
    _takes(node, writer, [(a, movement.nearest(sizes[a], made[a - 1], *flags)) for a in (1, 2)])


def _take(node: Node, writer: ProgramWriter) -> None:
    attrs = node.typed(TakeAttrs)
    writer.step("take", node.inputs, node.name, axis=attrs.axis, indices=attrs.indices)


def _takes(node: Node, writer: ProgramWriter, axes: list[tuple[int, Codes]]) -> None:
    """Pick elements by index, one axis after the other."""
    if not axes:
        return _reshape(node, writer)
    value, shape = node.inputs[0], list(writer.shape(node.inputs[0]))
    for i, (axis, indices) in enumerate(axes):
        shape[axis] = len(indices)
        last = i == len(axes) - 1
        made = node.name if last else writer.between(node, f"axis{axis}", tuple(shape))
        taken = tuple(int(j) for j in indices)
        writer.step("take", (value,), made, axis=axis, indices=taken)
        value = made
    return None


def _turned(node: Node, writer: ProgramWriter, value: str, parts: Sizes, perm: Sizes) -> str:
    """A tensor whose axes are split into `parts` and then permuted."""
    apart = writer.between(node, "split", parts)
    writer.step("reshape", (value,), apart, shape=parts)
    turned = writer.between(node, "turned", tuple(parts[i] for i in perm))
    writer.step("transpose", (apart,), turned, perm=perm)
    return turned


def _blocks(split: Callable[[int, int, int, int, int], Sizes], perm: Sizes) -> Rule:
    """Reshape, transpose, reshape: `split` gives the shape to split [n, h, w, c] into."""

    def rule(node: Node, writer: ProgramWriter) -> None:
        n, h, w, c = writer.shape(node.inputs[0])
        parts = split(n, h, w, c, node.typed(blocks.BlockAttrs).block)
        turned = _turned(node, writer, node.inputs[0], parts, perm)
        writer.step("reshape", (turned,), node.name, shape=writer.shape(node.name))

    return rule


def _space_to_batch(node: Node, writer: ProgramWriter) -> None:
    attrs = node.typed(blocks.SpaceToBatchAttrs)
    (bh, bw), paddings = attrs.block, ((0, 0), *attrs.paddings, (0, 0))
    old = writer.shape(node.inputs[0])
    n, h, w, c = (d + a + b for d, (a, b) in zip(old, paddings, strict=True))
    wide = writer.between(node, "padded", (n, h, w, c))
    writer.step("pad", node.inputs, wide, paddings=paddings)
    parts = (n, h // bh, bh, w // bw, bw, c)
    turned = _turned(node, writer, wide, parts, (2, 4, 0, 1, 3, 5))
    writer.step("reshape", (turned,), node.name, shape=writer.shape(node.name))


def _batch_to_space(node: Node, writer: ProgramWriter) -> None:
    attrs = node.typed(blocks.BatchToSpaceAttrs)
    (bh, bw), ((top, bottom), (left, right)) = attrs.block, attrs.crops
    n, h, w, c = writer.shape(node.inputs[0])
    parts = (bh, bw, n // (bh * bw), h, w, c)
    turned = _turned(node, writer, node.inputs[0], parts, (2, 3, 0, 4, 1, 5))
    whole = (n // (bh * bw), h * bh, w * bw, c)
    joined = writer.between(node, "joined", whole)
    writer.step("reshape", (turned,), joined, shape=whole)
    ends = [(0, None), (top, h * bh - bottom), (left, w * bw - right), (0, None)]
    every = [_normal(size, slice(*end, 1)) for size, end in zip(whole, ends, strict=True)]
    begin, end, strides = (tuple(column) for column in zip(*every, strict=True))
    writer.step("slice", (joined,), node.name, begin=begin, end=end, strides=strides)


BLOCKS = (0, 1, 3, 2, 4, 5)
MOVES: Mapping[str, Rule] = {
    **dict.fromkeys(("identity", "reshape", "squeeze", "expand_dims"), _reshape),
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "take": _take,
    "resize_nearest": _resize,
    "space_to_depth": _blocks(lambda n, h, w, c, b: (n, h // b, b, w // b, b, c), BLOCKS),
    "depth_to_space": _blocks(lambda n, h, w, c, b: (n, h, w, b, b, c // (b * b)), BLOCKS),
    "space_to_batch": _space_to_batch,
    "batch_to_space": _batch_to_space,
}
