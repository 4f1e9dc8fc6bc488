"""Ops that move elements: every code of the result is one of the input, or 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.types import Codes
from qgraph.ops.attribute_types import Pair
from qgraph.ops.attributes import Attributes, attribute
from qgraph.ops.movement import TakeAttrs, TransposeAttrs
from qgraph.ops.reach import Reach, reach_of_any
from qgraph.ops.shapes import Sizes, concatenated
from qgraph.program.ops.base import A, AnyProgramOp, Index, Manual, OpClass, Operand, ProgramOp
from qgraph.program.ops.elementwise import ALWAYS, always


@dataclass(frozen=True)
class ReshapeAttrs(Attributes):
    """Another shape for the same elements."""

    shape: tuple[int, ...] = attribute("sizes of the result", low=0)


@dataclass(frozen=True)
class SliceAttrs(Attributes):
    """A part of each axis. Raises GraphError for lists of other lengths and for strides of 0."""

    begin: tuple[int, ...] = attribute(
        "the first index of each axis; a negative one counts from the end"
    )
    end: tuple[int | None, ...] = attribute(
        "the index of each axis to stop before, a negative one counts from the end; None to stop "
        "after the last one, or after the first one if the stride is negative"
    )
    strides: tuple[int, ...] = attribute("the step between indices of each axis; never 0")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not len(self.begin) == len(self.end) == len(self.strides):
            raise GraphError("`begin`, `end` and `strides` have different lengths")
        if 0 in self.strides:
            raise GraphError(f"attribute `strides` is {self.strides}: a stride cannot be 0")

    @property
    def parts(self) -> tuple[slice, ...]:
        ends = zip(self.begin, self.end, self.strides, strict=True)
        return tuple(slice(*part) for part in ends)

    def first(self, sizes: Sizes) -> Sizes:
        """The first index of each axis, counted from the front."""
        return tuple(b + n if b < 0 else b for b, n in zip(self.begin, sizes, strict=True))


@dataclass(frozen=True)
class ConcatAttrs(Attributes):
    """Tensors one after the other."""

    axis: int = attribute("the axis along which they are joined", low=0)


@dataclass(frozen=True)
class PadAttrs(Attributes):
    """Zeros around a tensor."""

    paddings: tuple[Pair, ...] = attribute("zeros before and after, for each axis", low=0)


# -- shapes -------------------------------------------------------------------------------------


def _reshape_shape(attrs: ReshapeAttrs, shapes: Sequence[Sizes]) -> Sizes:
    if math.prod(shapes[0]) != math.prod(attrs.shape):
        raise GraphError(f"{shapes[0]} and {attrs.shape} have different numbers of elements")
    return attrs.shape


def _axes(name: str, values: Sequence[object], shape: Sizes) -> None:
    if len(values) != len(shape):
        raise GraphError(f"attribute `{name}` is {values} for shape {shape}")


def _axis(axis: int, shape: Sizes) -> None:
    if axis >= len(shape):
        raise GraphError(f"attribute `axis` is {axis} for shape {shape}")


def _transpose_shape(attrs: TransposeAttrs, shapes: Sequence[Sizes]) -> Sizes:
    _axes("perm", attrs.perm, shapes[0])
    return tuple(shapes[0][axis] for axis in attrs.perm)


def _slice_shape(attrs: SliceAttrs, shapes: Sequence[Sizes]) -> Sizes:
    _axes("begin", attrs.begin, shapes[0])
    ranges = [part.indices(n) for part, n in zip(attrs.parts, shapes[0], strict=True)]
    if tuple(begin for begin, _, _ in ranges) != attrs.first(shapes[0]):
        raise GraphError(f"attribute `begin` is {attrs.begin} for shape {shapes[0]}")
    return tuple(len(range(*part)) for part in ranges)


def _concat_shape(attrs: ConcatAttrs, shapes: Sequence[Sizes]) -> Sizes:
    _axis(attrs.axis, shapes[0])
    return concatenated(shapes, attrs.axis)


def _pad_shape(attrs: PadAttrs, shapes: Sequence[Sizes]) -> Sizes:
    _axes("paddings", attrs.paddings, shapes[0])
    return tuple(a + size + b for (a, b), size in zip(attrs.paddings, shapes[0], strict=True))


def _take_shape(attrs: TakeAttrs, shapes: Sequence[Sizes]) -> Sizes:
    x, axis = shapes[0], attrs.axis
    _axis(axis, x)
    if any(index >= x[axis] for index in attrs.indices):
        raise GraphError(f"attribute `indices` goes to {max(attrs.indices)} for shape {x}")
    return (*x[:axis], len(attrs.indices), *x[axis + 1 :])


def _embedding_shape(attrs: Attributes, shapes: Sequence[Sizes]) -> Sizes:
    x, table = shapes
    if not table or not table[0]:
        raise GraphError(f"needs a table with rows, found one of shape {table}")
    return (*x, *table[1:])


# -- arithmetic and ranges ----------------------------------------------------------------------


def joined(attrs: Attributes, inputs: Sequence[Operand]) -> Reach:
    """Range of all elements of the operands."""
    return reach_of_any(inputs)


def _padded(attrs: Attributes, inputs: Sequence[Operand]) -> Reach:
    x = inputs[0]
    return Reach(min(x.low, 0), max(x.high, 0), x.magnitude)


def _concat(attrs: ConcatAttrs, inputs: Sequence[Codes]) -> Codes:
    return np.concatenate(inputs, axis=attrs.axis)


def _embedding(attrs: Attributes, inputs: Sequence[Codes]) -> Codes:
    x, table = inputs
    return table[x]


def _rows(attrs: Attributes, inputs: Sequence[Operand]) -> Reach:
    """Range of the table. Raises GraphError for an index without a row."""
    x, table = inputs
    if x.low < 0 or x.high >= table.shape[0]:
        raise GraphError(f"indices of {x.low} to {x.high} for {table.shape[0]} rows")
    return Reach(table.low, table.high, max(-table.low, table.high))


# -- structure ----------------------------------------------------------------------------------


def _concat_is_separate(attrs: ConcatAttrs, inputs: Sequence[Operand], made: Sizes) -> bool:
    return attrs.axis != 0 and not any(x.constant for x in inputs)


def _moved_sources(
    compute: Callable[[A, Sequence[Codes]], Codes],
) -> Callable[[A, Sequence[Codes], Index], list[tuple[int, Index]]]:
    """Move indices instead of codes to find the source of each element; 0 is padding."""

    def sources(attrs: A, inputs: Sequence[Codes], index: Index) -> list[tuple[int, Index]]:
        numbers, firsts, count = list[Codes](), list[int](), 1
        for x in inputs:
            numbers.append(np.arange(count, count + x.size).reshape(x.shape))
            firsts.append(count)
            count += x.size
        number = int(np.asarray(compute(attrs, numbers))[index])
        if number == 0:
            return []
        which = max(i for i, first in enumerate(firsts) if number >= first)
        at = np.unravel_index(number - firsts[which], inputs[which].shape)
        return [(which, tuple(int(i) for i in at))]

    return sources


def _embedding_sources(
    attrs: Attributes, inputs: Sequence[Codes], index: Index
) -> list[tuple[int, Index]]:
    rank = inputs[0].ndim
    row = int(inputs[0][index[:rank]])
    return [(0, index[:rank]), (1, (row, *index[rank:]))]


def _slice_numbers(attrs: SliceAttrs, shapes: Sequence[Sizes]) -> list[int]:
    """Start and stride of each axis; its end follows from the output's shape."""
    parts = zip(attrs.first(shapes[0]), attrs.strides, strict=True)
    return [number for part in parts for number in part]


MOVED = "none: codes are not changed"
SAME_RANGE = "that of x"


def _move(
    name: str,
    code: int,
    attributes: type[A],
    manual: Manual,
    shape: Callable[[A, Sequence[Sizes]], Sizes],
    compute: Callable[[A, Sequence[Codes]], Codes],
    separate: Callable[[A, Sequence[Operand], Sizes], bool],
    reach: Callable[[A, Sequence[Operand]], Reach] = joined,
    *,
    family: OpClass = OpClass.MOVE,
    operands: tuple[str, ...] = ("x",),
    for_batch: Callable[[A, int], A] | None = None,
    file: tuple[str, ...] | None = None,
    numbers: Callable[[A, Sequence[Sizes]], list[int]] | None = None,
) -> ProgramOp[A]:
    """An op whose sources follow from what it computes."""
    return ProgramOp(
        name, code, family, operands, attributes, manual, shape, compute, reach, separate,
        _moved_sources(compute), for_batch, file, numbers,
    )  # fmt: skip


OPS: tuple[AnyProgramOp, ...] = (
    _move(
        "reshape", 13, ReshapeAttrs,
        Manual(
            "The same elements, row by row, in another shape.",
            "`shape`; if the batch is free, the first size is N instead of 1",
            "y has the elements of x in row-major order (the last index changes fastest)",
            SAME_RANGE,
            MOVED,
            ALWAYS,
            "no numbers: `shape` is the shape of the output",
        ),
        _reshape_shape,
        lambda attrs, inputs: np.reshape(inputs[0], attrs.shape),
        always,
        family=OpClass.RESHAPE,
        for_batch=lambda attrs, samples: replace(attrs, shape=(samples, *attrs.shape[1:])),
        file=(),
    ),
    _move(
        "transpose", 14, TransposeAttrs,
        Manual(
            "Changes the order of axes.",
            "the size of axis i is that of axis perm[i] of x",
            "y[j] = x[i] where i[perm[k]] = j[k] for every axis k",
            SAME_RANGE,
            MOVED,
            "if `perm` begins with 0",
        ),
        _transpose_shape,
        lambda attrs, inputs: np.transpose(inputs[0], attrs.perm),
        lambda attrs, inputs, made: attrs.perm[0] == 0,
    ),
    _move(
        "slice", 15, SliceAttrs,
        Manual(
            "A part of each axis, forwards or backwards.",
            "for each axis, the number of `begin`, `begin + stride`, ... that are indices of x and "
            "come before `end` (after it if the stride is negative); negative numbers of `begin` "
            "and `end` count from the end: -1 is the last index",
            "y[j] = x[i] where i[k] = begin[k] + j[k] * strides[k] for every axis k",
            SAME_RANGE,
            MOVED,
            "if the first axis has begin 0, end None and stride 1",
            "for each axis its number of `begin`, counted from the front, then its number of "
            "`strides`; `end` follows from the shape of the output",
        ),
        _slice_shape,
        lambda attrs, inputs: inputs[0][attrs.parts],
        lambda attrs, inputs, made: attrs.parts[0] == slice(0, None, 1),
        file=("begin", "strides"),
        numbers=_slice_numbers,
    ),
    _move(
        "concat", 16, ConcatAttrs,
        Manual(
            "Joins tensors along an axis; their other sizes are equal.",
            "that of the operands, with the sum of their sizes along `axis`",
            "y = x0, then x1, ..., along `axis`",
            "the smallest of the lows to the largest of the highs; the largest magnitude",
            MOVED,
            "if `axis` is not 0 and no operand is constant",
        ),
        _concat_shape,
        _concat,
        _concat_is_separate,
        operands=("x...",),
    ),
    _move(
        "pad", 17, PadAttrs,
        Manual(
            "Adds zeros around a tensor.",
            "before + size + after for each axis",
            "y[j] = x[i] where i[k] = j[k] - paddings[k][0]; 0 if i is not an index of x",
            "that of x, widened to include 0; the magnitude is that of x",
            MOVED,
            "if the first axis has no padding",
        ),
        _pad_shape,
        lambda attrs, inputs: np.pad(inputs[0], attrs.paddings),
        lambda attrs, inputs, made: attrs.paddings[0] == (0, 0),
        _padded,
    ),
    _move(
        "take", 18, TakeAttrs,
        Manual(
            "Picks elements by index along an axis; an index may repeat.",
            "that of x, with the number of `indices` along `axis`",
            "y[j] = x[i] where i[axis] = indices[j[axis]], and i[k] = j[k] for every other axis k",
            SAME_RANGE,
            MOVED,
            "if `axis` is not 0",
        ),
        _take_shape,
        lambda attrs, inputs: np.take(inputs[0], attrs.indices, axis=attrs.axis),
        lambda attrs, inputs, made: attrs.axis != 0,
    ),
    ProgramOp(
        "embedding", 23, OpClass.MOVE, ("x", "table"), Attributes,
        Manual(
            "Picks rows of a constant table; the codes of x are the indices of rows.",
            "that of x, then that of a row of the table",
            "y[i, j] = table[x[i], j] for every index i of x and j of a row",
            "low to high of the table; the magnitude is max(-low, high)",
            "refused unless x has codes of 0 to the number of rows minus 1 only",
            ALWAYS,
        ),
        _embedding_shape, _embedding, _rows, always, _embedding_sources,
    ),
)  # fmt: skip
