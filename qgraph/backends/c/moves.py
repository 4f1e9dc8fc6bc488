"""Ops that only move codes: loops that copy them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qgraph.backends.c.text import Text, index, merged, named, strides
from qgraph.program import Program, Step


@dataclass(frozen=True)
class Walk:
    """Copy `sizes` codes: from where to where, by strides."""

    source: str
    sizes: Sequence[int]
    steps: Sequence[int]
    to_steps: Sequence[int]
    start: int = 0
    to_start: int = 0


def walks(step: Step, program: Program) -> Iterator[Walk]:
    """What a move copies; `pad` leaves the rest of its output 0."""
    attrs, shapes = step.attrs, [program.tensors[v].shape for v in step.inputs]
    made = program.tensors[step.output].shape
    x, own, to = step.inputs[0], strides(shapes[0]), strides(made)
    if step.op == "reshape":
        yield Walk(x, made, to, to)
    elif step.op == "transpose":
        yield Walk(x, made, [own[a] for a in attrs["perm"]], to)
    elif step.op == "slice":
        steps = [a * b for a, b in zip(own, attrs["strides"], strict=True)]
        yield Walk(x, made, steps, to, _place(own, attrs["begin"]))
    elif step.op == "pad":
        before = [a for a, _ in attrs["paddings"]]
        yield Walk(x, shapes[0], own, to, 0, _place(to, before))
    else:
        assert step.op == "concat"
        axis, start = attrs["axis"], 0
        for value, shape in zip(step.inputs, shapes, strict=True):
            yield Walk(value, shape, strides(shape), to, 0, start * to[axis])
            start += shape[axis]


def _place(steps: Sequence[int], at: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(steps, at, strict=True))


def write_walk(text: Text, walk: Walk, array: str, same_type: bool) -> None:
    """The loops of a walk from `array` to `to`; runs of neighbours in one go."""
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
    """Loops that pick by an array of indices along one axis."""
    shape, made = (program.tensors[v].shape for v in (step.inputs[0], step.output))
    axis = step.attrs["axis"]
    own, to = strides(shape), strides(made)
    counters = [(f"d{k}", size) for k, size in enumerate(made)]
    with text.loops(counters):
        rest = [0 if a == axis else own[a] for a in range(len(made))]
        name, size = counters[axis]
        pick = f"{indices}[{name if size > 1 else 0}]"
        picked = f"{own[axis]} * {pick}" if own[axis] > 1 else pick
        text.line(f"to[{index(to, counters)}] = {array}[{index(rest, counters)} + {picked}];")
