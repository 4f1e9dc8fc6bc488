"""Parts of a program that run one after the other, with float islands between them.

An island is a part of the network that has no integer form and lies between integer layers. The
host computes it in float: from codes of exits of earlier segments to the values of entries of later
ones.
"""

from __future__ import annotations

from dataclasses import replace

from qgraph.program.program import Entry, Program


def segments(program: Program) -> tuple[Program, ...]:
    """The parts of a program, in order; the program itself if no island interrupts it.

    A tensor that a later segment reads is an exit of the segment that makes it. In the later one it
    is an entry that is its own source (`Entry.of_codes`).
    """
    if not program.has_islands:
        return (program,)
    numbers, at = sorted({e.segment for e in program.entries}), _segment_of_each(program)
    return tuple(_part(program, number, at) for number in numbers)


def _segment_of_each(program: Program) -> dict[str, int]:
    """The segment of each tensor except constants: the last one that it depends on."""
    at = {entry.tensor: entry.segment for entry in program.entries}
    for step in program.steps:
        at[step.output] = max(at[v] for v in step.inputs if v in at)
    return at


def _part(program: Program, number: int, at: dict[str, int]) -> Program:
    steps = [step for step in program.steps if at[step.output] == number]
    read = {v for step in steps for v in step.inputs}
    made = {step.output for step in steps}
    given = {entry.tensor: entry for entry in program.entries}
    later = {v for s in program.steps if at[s.output] > number for v in s.inputs}
    exits = [v for v in program.exits if at.get(v) == number]
    exits += [v for v in program.tensors if v in made & later and v not in exits]
    begun = [v for v in program.tensors if v in (read | {*exits}) - made and v in at]
    names = made | read | {*exits, *begun}
    return replace(
        program,
        name=f"{program.name}/{number}",
        tensors={n: t for n, t in program.tensors.items() if n in names},
        constants={n: c for n, c in program.constants.items() if n in names},
        entries=tuple(
            given[v] if v in given else Entry.of_codes(program.tensors[v]) for v in begun
        ),
        exits=tuple(exits),
        steps=tuple(steps),
    )
