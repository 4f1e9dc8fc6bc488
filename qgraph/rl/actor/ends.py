"""The first and the last layers of a program, which may have other bits."""

from __future__ import annotations

from qgraph.rl.actor.ops import ColumnsAttrs
from qgraph.rl.actor.program import ActorProgram, ActorStep


def first_layers(program: ActorProgram) -> list[ActorStep]:
    """Layers that the observation reaches through no other layer, in order.

    States, which are slices of the observation, are not counted.
    """
    reached, first = {program.observation}, []
    for step in program.steps:
        if reached.intersection(step.inputs) and not _takes_state(program, step):
            if step.definition.layer:
                first.append(step)
            else:
                reached.add(step.output)
    return first


def _takes_state(program: ActorProgram, step: ActorStep) -> bool:
    """Whether a step takes columns of states."""
    if step.op != "slice" or step.inputs != (program.observation,):
        return False
    return step.attrs_as(ColumnsAttrs).columns[0] >= program.observed


def last_layers(program: ActorProgram) -> list[ActorStep]:
    """Layers whose results reach an output through no other layer, in order.

    Outputs that are the next states are not counted.
    """
    wanted, last = set(program.outputs) - {state.output for state in program.states}, []
    for step in reversed(program.steps):
        if step.output in wanted:
            if step.definition.layer:
                last.append(step)
            else:
                wanted.update(step.inputs)
    return last[::-1]
