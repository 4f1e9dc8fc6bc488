"""The first and the last layers of a program, which may have other bits."""

from __future__ import annotations

from qgraph.rl.actor.program import ActorProgram, ActorStep


def first_layers(program: ActorProgram) -> list[ActorStep]:
    """Layers that the observation reaches through no other layer, in order."""
    reached, first = {program.observation}, []
    for step in program.steps:
        if reached.intersection(step.inputs):
            if step.definition.layer:
                first.append(step)
            else:
                reached.add(step.output)
    return first


def last_layers(program: ActorProgram) -> list[ActorStep]:
    """Layers whose results reach an output through no other layer, in order."""
    wanted, last = set(program.outputs), []
    for step in reversed(program.steps):
        if step.output in wanted:
            if step.definition.layer:
                last.append(step)
            else:
                wanted.update(step.inputs)
    return last[::-1]
