"""A program as layers: an op, and the elementwise steps on its result before it is stored."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from qgraph.program.program import Program, Step, Tensor


@dataclass(frozen=True)
class Layer:
    """Steps that share one loop: the first may be any op, all others are pointwise.

    `stored`: the outputs that are needed outside of the loop; other outputs are never in memory.
    """

    steps: tuple[Step, ...]
    stored: tuple[str, ...]

    @property
    def head(self) -> Step:
        return self.steps[0]

    @property
    def made(self) -> tuple[str, ...]:
        return tuple(step.output for step in self.steps)

    @property
    def read(self) -> tuple[str, ...]:
        """Input tensors of the layer, also constants, in the order of their first use."""
        made = set(self.made)
        return tuple(dict.fromkeys(v for s in self.steps for v in s.inputs if v not in made))


def layers(program: Program) -> list[Layer]:
    """The layers of a program, in order, without steps that nothing depends on.

    A pointwise step joins the layer that computes the last of its inputs, if their shapes are
    equal. Its other inputs have been computed before.
    """
    groups: list[list[Step]] = []
    maker: dict[str, int] = {}
    for step in _live(program):
        last = max((maker.get(v, -1) for v in step.inputs), default=-1)
        if last < 0 or not _joins(program, step, groups[last]):
            last = len(groups)
            groups.append([])
        groups[last].append(step)
        maker[step.output] = last
    needed = _needed_elsewhere(program, groups, maker)
    return [
        Layer(tuple(group), tuple(s.output for s in group if s.output in needed))
        for group in groups
    ]


def _live(program: Program) -> Iterable[Step]:
    wanted, live = set(program.exits), []
    for step in reversed(program.steps):
        if step.output in wanted:
            wanted.update(step.inputs)
            live.append(step)
    return reversed(live)


def _joins(program: Program, step: Step, group: list[Step]) -> bool:
    shape = program.tensors[group[0].output].shape
    return (
        step.family.pointwise
        and not group[0].family.moves
        and program.tensors[step.output].shape == shape
        and all(
            program.tensors[v].shape == shape for v in step.inputs if v in {s.output for s in group}
        )
    )


def _needed_elsewhere(
    program: Program, groups: list[list[Step]], maker: dict[str, int]
) -> set[str]:
    needed = set(program.exits)
    for i, group in enumerate(groups):
        needed.update(v for step in group for v in step.inputs if maker.get(v, i) != i)
    return needed


def elements(tensor: Tensor) -> int:
    return math.prod(tensor.shape)
