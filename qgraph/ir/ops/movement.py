"""Ops that only move values: their codes and their scale pass through unchanged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.enums import StrEnum
from qgraph.errors import GraphError
from qgraph.ir.ops.attributes import AxesAttrs, AxisAttrs
from qgraph.ir.ops.base import (
    AnyOp,
    Elements,
    OpDef,
    Scale,
    Shapes,
    always,
    as_its_inputs,
    axis_of,
    image_sizes,
    moved,
    reach_of_inputs,
    same_as_first,
)
from qgraph.ir.types import Array, Codes, Fixed, Shape, TensorType
from qgraph.ops.attribute_types import Pair
from qgraph.ops.attributes import A, Attributes, attribute
from qgraph.ops.movement import TakeAttrs, TransposeAttrs
from qgraph.ops.reach import Ranged, Reach, reach_of_any, with_zero

Infer = Callable[[Any, Sequence[TensorType]], TensorType]


class PadMode(StrEnum):
    """The elements around a padded tensor."""

    CONSTANT = "constant"
    REFLECT = "reflect"  # mirrored without the edge
    SYMMETRIC = "symmetric"  # mirrored with the edge


@dataclass(frozen=True, kw_only=True)
class PaddingAttrs(Attributes):
    """Elements around a tensor."""

    paddings: tuple[Pair, ...] = attribute("elements before and after, for each axis", low=0)
    mode: PadMode = attribute(
        "what they are: `value`, or elements of the tensor mirrored at its edge",
        default=PadMode.CONSTANT,
    )
    value: int | float = attribute("the elements of mode `constant`", default=0)


@dataclass(frozen=True, kw_only=True)
class TargetAttrs(Attributes):
    """Another shape for the same elements."""

    shape: tuple[int, ...] = attribute("sizes of the result; -1 for the remaining elements", low=-1)


@dataclass(frozen=True, kw_only=True)
class PartAttrs(Attributes):
    """A part of each axis, like Python slices: None is `from the start` or `to the end`."""

    begin: tuple[int | None, ...] = attribute("the first index of each axis")
    end: tuple[int | None, ...] = attribute("the index of each axis to stop before")
    strides: tuple[int | None, ...] = attribute("from one index of each axis to the next")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not len(self.begin) == len(self.end) == len(self.strides):
            raise GraphError("attributes `begin`, `end` and `strides` have different lengths")
        if 0 in self.strides:
            raise GraphError("attribute `strides` has a 0")

    @property
    def slices(self) -> tuple[slice, ...]:
        ends = zip(self.begin, self.end, self.strides, strict=True)
        return tuple(slice(*part) for part in ends)


@dataclass(frozen=True, kw_only=True)
class ResizeAttrs(Attributes):
    """An image of another size."""

    size: Pair = attribute("height and width of the result", low=1)
    align_corners: bool = attribute("whether the centres of corner pixels coincide", default=False)
    half_pixel: bool = attribute("whether positions are centres of pixels", default=False)


def _infer_concat(attrs: AxisAttrs, inputs: Sequence[TensorType]) -> TensorType:
    shapes = [t.shape for t in inputs]
    if len({t.dtype for t in inputs}) > 1:
        raise GraphError(f"inputs have different dtypes: {[t.dtype for t in inputs]}")
    if any(s is None for s in shapes):
        return TensorType(inputs[0].dtype, None)
    known = [s for s in shapes if s is not None]
    rank = len(known[0])
    axis = axis_of(attrs.axis, rank)
    result: list[int | None] = []
    for i in range(rank):
        dims = [s[i] if len(s) == rank else -1 for s in known]
        if i == axis:
            result.append(None if None in dims else sum(d or 0 for d in dims))
            continue
        fixed = {d for d in dims if d is not None}
        if len(fixed) > 1:
            raise GraphError(f"shapes cannot be joined along axis {axis}: {known}")
        result.append(fixed.pop() if fixed else None)
    return TensorType(inputs[0].dtype, tuple(result))


def _concat(attrs: AxisAttrs, inputs: Sequence[Array]) -> Array:
    return np.concatenate(list(inputs), axis=attrs.axis)


def _infer_pad(attrs: PaddingAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None:
        return x
    pads = attrs.paddings
    if len(pads) != len(x.shape):
        raise GraphError(f"paddings {pads} do not fit {x}")
    dims = (None if d is None else d + a + b for d, (a, b) in zip(x.shape, pads, strict=True))
    return x.with_shape(tuple(dims))


def _pad(attrs: PaddingAttrs, inputs: Sequence[Array]) -> Array:
    if attrs.mode is PadMode.CONSTANT:
        return np.pad(inputs[0], attrs.paddings, constant_values=attrs.value)
    return mirrored(inputs[0], attrs.paddings, attrs.mode)


def mirrored(x: Array, paddings: Sequence[Pair], mode: PadMode) -> Array:
    """A tensor with its own elements around it."""
    return np.pad(x, paddings, mode="reflect" if mode is PadMode.REFLECT else "symmetric")


def _infer_reshape(attrs: TargetAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x, target = inputs[0], attrs.shape
    if x.shape is not None and None not in x.shape:
        size = math.prod(d or 0 for d in x.shape)
        rest = math.prod(d for d in target if d != -1)
        if -1 in target:
            if rest == 0 or size % rest:
                raise GraphError(f"{x} cannot be reshaped to {target}")
            target = tuple(size // rest if d == -1 else d for d in target)
        elif rest != size:
            raise GraphError(f"{x} cannot be reshaped to {target}")
    return TensorType(x.dtype, tuple(None if d == -1 else int(d) for d in target))


def _reshape(attrs: TargetAttrs, inputs: Sequence[Array]) -> Array:
    return np.reshape(inputs[0], attrs.shape)


def _infer_transpose(attrs: TransposeAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x, perm = inputs[0], attrs.perm
    if x.shape is None:
        return x
    if sorted(perm) != list(range(len(x.shape))):
        raise GraphError(f"perm {perm} does not fit {x}")
    return x.with_shape(tuple(x.shape[i] for i in perm))


def _infer_slice(attrs: PartAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None:
        return x
    if len(attrs.begin) != len(x.shape):
        raise GraphError(f"slice of rank {len(attrs.begin)} does not fit {x}")
    dims: list[int | None] = []
    for d, part in zip(x.shape, attrs.slices, strict=True):
        dims.append(d if d is None and part == slice(None, None, 1) else None)
        if d is not None:
            dims[-1] = len(range(*part.indices(d)))
    return x.with_shape(tuple(dims))


def _slice(attrs: PartAttrs, inputs: Sequence[Array]) -> Array:
    return inputs[0][attrs.slices]


def _infer_squeeze(attrs: AxesAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None:
        return x
    axes = {axis_of(a, len(x.shape)) for a in attrs.axes}
    if any(x.shape[a] not in (1, None) for a in axes):
        raise GraphError(f"axes {sorted(axes)} of {x} are not all 1")
    return x.with_shape(tuple(d for i, d in enumerate(x.shape) if i not in axes))


def _infer_expand_dims(attrs: AxisAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None:
        return x
    axis = axis_of(attrs.axis, len(x.shape) + 1)
    return x.with_shape((*x.shape[:axis], 1, *x.shape[axis:]))


def _infer_resize(attrs: ResizeAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    n, _, _, c = image_sizes(x)
    return x.with_shape((n, *attrs.size, c))


def nearest(size: int, out: int, align_corners: bool, half_pixel: bool) -> Codes:
    """Index of the source of each result, in float32 arithmetic like TensorFlow's."""
    at, whole = np.arange(out, dtype=np.float32), np.float32(size) / np.float32(out)
    if align_corners and out > 1:
        corners = np.float32(size - 1) / np.float32(out - 1)
        index = np.floor((at * corners).astype(np.float64) + 0.5)  # C's roundf
    elif half_pixel:
        index = np.floor((at + np.float32(0.5)) * whole)
    else:
        index = np.floor(at * whole)
    found: Codes = np.minimum(index.astype(np.int64), size - 1)
    return found


def _resize_nearest(attrs: ResizeAttrs, inputs: Sequence[Array]) -> Array:
    x, (h, w) = inputs[0], attrs.size
    flags = (attrs.align_corners, attrs.half_pixel)
    return x[:, nearest(x.shape[1], h, *flags)][:, :, nearest(x.shape[2], w, *flags)]


def _infer_take(attrs: TakeAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None:
        return x
    axis = axis_of(attrs.axis, len(x.shape))
    size = x.shape[axis]
    if size is not None and max(attrs.indices, default=-1) >= size:
        raise GraphError(f"index {max(attrs.indices)} is outside of axis {axis} of {x}")
    return x.with_shape((*x.shape[:axis], len(attrs.indices), *x.shape[axis + 1 :]))


def _take(attrs: TakeAttrs, inputs: Sequence[Array]) -> Array:
    return np.take(inputs[0], np.asarray(attrs.indices, np.int64), axis=attrs.axis)


def _infer_embedding(attrs: Attributes, inputs: Sequence[TensorType]) -> TensorType:
    table, indices = inputs
    if table.shape is None or indices.shape is None:
        return table.with_shape(None)
    if not table.shape:
        raise GraphError("needs a table with rows, found a scalar")
    return table.with_shape((*indices.shape, *table.shape[1:]))


def _embedding(attrs: Attributes, inputs: Sequence[Array]) -> Array:
    table, rows = inputs[0], inputs[1].astype(np.int64)
    if rows.size and not (rows.min() >= 0 and rows.max() < len(table)):
        raise IndexError(f"an index of {rows.min()} to {rows.max()} for {len(table)} rows")
    return table[rows]


def _embedding_of_codes(attrs: Attributes, inputs: Sequence[Fixed]) -> Fixed:
    """Codes outside of the table, which no valid index has, pick its first or last row."""
    table, indices = inputs
    rows = np.clip(indices.codes, 0, len(table.codes) - 1)
    return Fixed(table.codes[rows], table.exponent)


def _pad_nonnegative(attrs: PaddingAttrs, inputs: Sequence[bool]) -> bool:
    return attrs.value >= 0 and all(inputs)


def reach_with_zero(attrs: Attributes, inputs: Sequence[Ranged], shapes: Shapes) -> Reach:
    """The range of ops that insert zeros."""
    return with_zero(reach_of_any(inputs))


def _squeeze_is_separate(attrs: AxesAttrs, shape: Shape) -> bool:
    return 0 not in {axis % len(shape) for axis in attrs.axes}


def _reshape_is_separate(attrs: TargetAttrs, shape: Shape) -> bool:
    rest, target = shape[1:], attrs.shape
    known = None not in rest and bool(target) and target[0] == -1 and -1 not in target[1:]
    return known and math.prod(d or 0 for d in rest) == math.prod(target[1:])


def mover(
    name: str,
    attributes: type[A],
    infer: Infer,
    evaluate: Callable[[A, Sequence[Array]], Array],
    separate: Callable[[A, Shape], bool] | None,
    reach: Callable[[A, Sequence[Ranged], Shapes], Reach] = reach_of_inputs,
    nonnegative: Callable[[A, Sequence[bool]], bool] = as_its_inputs,
    elementwise: bool = False,
) -> AnyOp:
    """The definition of an op that moves the elements of one tensor."""
    return OpDef(
        name, (1, 1), attributes, infer, evaluate, moved(evaluate), scale=Scale.KEPT, reach=reach,
        nonnegative=nonnegative, moves=True, elementwise=elementwise, separate=separate,
    )  # fmt: skip


OPS: tuple[AnyOp, ...] = (
    mover(
        "identity", Attributes, same_as_first, lambda attrs, inputs: inputs[0], always,
        elementwise=True,
    ),
    OpDef(
        "concat", (1, None), AxisAttrs, _infer_concat, _concat, moved(_concat),
        scale=Scale.SHARED, reach=reach_of_inputs, nonnegative=as_its_inputs, moves=True,
        separate=lambda attrs, shape: attrs.axis % len(shape) != 0,
    ),
    mover(
        "pad", PaddingAttrs, _infer_pad, _pad, lambda attrs, shape: attrs.paddings[0] == (0, 0),
        reach_with_zero, _pad_nonnegative,
    ),
    mover("reshape", TargetAttrs, _infer_reshape, _reshape, _reshape_is_separate),
    mover(
        "transpose", TransposeAttrs, _infer_transpose,
        lambda attrs, inputs: np.transpose(inputs[0], attrs.perm),
        lambda attrs, shape: attrs.perm[0] == 0,
    ),
    mover(
        "slice", PartAttrs, _infer_slice, _slice,
        lambda attrs, shape: attrs.slices[0] in (slice(None, None, 1), slice(0, None, 1)),
    ),
    mover(
        "squeeze", AxesAttrs, _infer_squeeze,
        lambda attrs, inputs: np.squeeze(inputs[0], attrs.axes), _squeeze_is_separate,
    ),
    mover(
        "expand_dims", AxisAttrs, _infer_expand_dims,
        lambda attrs, inputs: np.expand_dims(inputs[0], attrs.axis),
        lambda attrs, shape: attrs.axis % (len(shape) + 1) != 0,
    ),
    mover("take", TakeAttrs, _infer_take, _take, lambda attrs, shape: attrs.axis != 0),
    # table, indices of its rows; indices may be floats, which hold integers up to 2^24 exactly
    OpDef(
        "embedding", (2, 2), Attributes, _infer_embedding, _embedding, _embedding_of_codes,
        scale=Scale.KEPT, reach=lambda attrs, inputs, shapes: reach_of_any(inputs[:1]),
        nonnegative=lambda attrs, inputs: inputs[0], takes=Elements.NUMBERS, separate=always,
        owns=True,
    ),
    mover("resize_nearest", ResizeAttrs, _infer_resize, _resize_nearest, always),
)  # fmt: skip
