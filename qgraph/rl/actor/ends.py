"""The layers at both ends of a program, which may have bits of their own."""

from __future__ import annotations

from qgraph.rl.actor.program import ActorProgram, ActorStep


def first_layers(program: ActorProgram) -> list[ActorStep]:
    """Layers that the observation reaches through no other layer, in order."""
    reached, found = {program.observation}, []
    for step in program.steps:
        if reached.intersection(step.inputs):
            if step.definition.layer:
                found.append(step)
            else:
                reached.add(step.output)
    return found


def last_layers(program: ActorProgram) -> list[ActorStep]:
    """Layers whose results reach an output through no other layer, in order."""
    wanted, found = set(program.outputs), []
    for step in reversed(program.steps):
        if step.output in wanted:
            if step.definition.layer:
                found.append(step)
            else:
                wanted.update(step.inputs)
    return found[::-1]
