"""Check whether samples of a batch stay separate in a program, so that a run can have several."""

from __future__ import annotations

import numpy as np

from qgraph.program.program import Program, Step


def samples_are_separate(program: Program) -> bool:
    """Whether every tensor except constants has one sample in front, and no step mixes samples."""
    apart = [_sample(program, entry.tensor) for entry in program.entries]
    return all(apart) and all(
        _sample(program, step.output) and _is_separate(program, step) for step in program.steps
    )


def blocks_are_separate(program: Program, of_two: Program) -> bool:
    """Whether a program for two samples equals two runs: first the rows of one, then of the other.

    of_two: the same network, lowered for two samples.
    """
    one, two = program.tensors, of_two.tensors
    made = [name for name in one if name not in program.constants]
    return (
        set(one) == set(two)
        and all(two[n].shape == _doubled(one[n].shape) for n in made)
        and all(np.array_equal(c, of_two.constants[n]) for n, c in program.constants.items())
        and all(_is_separate(program, step) for step in program.steps)
    )


def _doubled(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (2 * shape[0], *shape[1:]) if shape else ()


def _sample(program: Program, name: str) -> bool:
    return program.tensors[name].shape[:1] == (1,)


def _is_separate(program: Program, step: Step) -> bool:
    made = program.tensors[step.output].shape
    return step.definition.separate(step.attrs, program.operands(step), made)
