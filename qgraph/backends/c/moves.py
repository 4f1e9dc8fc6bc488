"""Ops that only move codes: loops that copy them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from qgraph.backends.c.c_text import Text, index, merged, named, strides
from qgraph.program import Program, Step
from qgraph.program.ops import ConcatAttrs, PadAttrs, SliceAttrs, TakeAttrs, TransposeAttrs


@dataclass(frozen=True)
class StridedCopy:
    """Copy `sizes` codes: from where to where, by strides."""

    source: str
    sizes: Sequence[int]
    steps: Sequence[int]
    to_steps: Sequence[int]
    start: int = 0
    to_start: int = 0


def _reshape(step: Step, program: Program) -> Iterator[StridedCopy]:
    made = program.tensors[step.output].shape
    yield StridedCopy(step.inputs[0], made, strides(made), strides(made))


def _transpose(step: Step, program: Program) -> Iterator[StridedCopy]:
    attrs = step.attrs_as(TransposeAttrs)
    x, shape, made = _ends(step, program)
    own = strides(shape)
    yield StridedCopy(x, made, [own[axis] for axis in attrs.perm], strides(made))


def _slice(step: Step, program: Program) -> Iterator[StridedCopy]:
    attrs = step.attrs_as(SliceAttrs)
    x, shape, made = _ends(step, program)
    own = strides(shape)
    steps = [a * b for a, b in zip(own, attrs.strides, strict=True)]
    yield StridedCopy(x, made, steps, strides(made), _place(own, attrs.first(shape)))


def _pad(step: Step, program: Program) -> Iterator[StridedCopy]:
    """The copied part; the rest of the output stays 0."""
    attrs = step.attrs_as(PadAttrs)
    x, shape, made = _ends(step, program)
    to = strides(made)
    before = [a for a, _ in attrs.paddings]
    yield StridedCopy(x, shape, strides(shape), to, 0, _place(to, before))


def _concat(step: Step, program: Program) -> Iterator[StridedCopy]:
    attrs = step.attrs_as(ConcatAttrs)
    axis, start, to = attrs.axis, 0, strides(program.tensors[step.output].shape)
    for value in step.inputs:
        shape = program.tensors[value].shape
        yield StridedCopy(value, shape, strides(shape), to, 0, start * to[axis])
        start += shape[axis]


def _ends(step: Step, program: Program) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """The first input, its shape, and that of the output."""
    x = step.inputs[0]
    return x, program.tensors[x].shape, program.tensors[step.output].shape


# What each op copies.
WALKS: Mapping[str, Callable[[Step, Program], Iterator[StridedCopy]]] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
}


def _place(steps: Sequence[int], at: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(steps, at, strict=True))


def write_walk(text: Text, walk: StridedCopy, array: str, same_type: bool) -> None:
    """The loops of a walk from `array` to `to`; contiguous codes are copied together."""
    sizes, (steps, to_steps) = merged(walk.sizes, [walk.steps, walk.to_steps])
    counters = named(sizes)
    whole = same_type and bool(sizes) and steps[-1] == to_steps[-1] == 1
    with text.loops(counters[:-1] if whole else counters):
        outer = counters[:-1] if whole else counters
        place = index(steps[: len(outer)], outer, walk.start)
        to_place = index(to_steps[: len(outer)], outer, walk.to_start)
        if whole:
            text.line(
                f"memcpy({_at('to', to_place)}, {_at(array, place)}, {sizes[-1]} * sizeof *to);"
            )
        else:
            text.line(f"to[{to_place}] = {array}[{place}];")


def _at(array: str, place: str) -> str:
    return array if place == "0" else f"{array} + {place}"


def write_take(text: Text, step: Step, program: Program, array: str, indices: str) -> None:
    """Loops that pick elements by an array of indices along one axis."""
    shape, made = (program.tensors[v].shape for v in (step.inputs[0], step.output))
    attrs = step.attrs_as(TakeAttrs)
    axis = attrs.axis
    own, to = strides(shape), strides(made)
    counters = [(f"d{k}", size) for k, size in enumerate(made)]
    with text.loops(counters):
        rest = [0 if a == axis else own[a] for a in range(len(made))]
        name, size = counters[axis]
        pick = f"{indices}[{name if size > 1 else 0}]"
        picked = f"{own[axis]} * {pick}" if own[axis] > 1 else pick
        text.line(f"to[{index(to, counters)}] = {array}[{index(rest, counters)} + {picked}];")


def write_rows(text: Text, step: Step, program: Program, array: str, table: str) -> None:
    """Copy a row of a table for each index of an array."""
    indices, rows, made = (program.tensors[v] for v in (*step.inputs, step.output))
    row = math.prod(rows.shape[1:])
    with text.loops([("n", math.prod(indices.shape))]):
        many = math.prod(indices.shape) > 1
        source = f"{table} + {array}[{'n' if many else 0}] * {row}"
        to = f"to + n * {row}" if many else "to"
        if rows.storage == made.storage:
            text.line(f"memcpy({to}, {source}, {row} * sizeof *to);")
        else:
            with text.loops([("c", row)]):
                text.line(f"({to})[c] = ({source})[c];" if row > 1 else f"*({to}) = *({source});")
