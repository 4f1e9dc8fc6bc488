"""The first and the last layers of a program, which may have other bits."""

from __future__ import annotations

from qgraph.rl.actor.program import ActorProgram, ActorStep


def first_layers(program: ActorProgram) -> list[ActorStep]:
    """Layers that the observation reaches through no other layer, in order.

    Selections are not counted as layers, and states are not observations.
    """
    reached, first = {program.observation}, []
    states = {each.step for each in program.selections if each.first >= program.observed}
    for step in program.steps:
        if reached.intersection(step.inputs) and step.output not in states:
            if step.definition.layer and step.output not in program.selecting:
                first.append(step)
            else:
                reached.add(step.output)
    return first


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
