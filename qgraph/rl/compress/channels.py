"""Units of layers, and the channels that each reaches, which must be removed together.

A unit is an output channel of a dense step (a neuron) or of a convolution (a feature map). Numbers
of units are given to the last axis of every value that carries them, so that rows and columns of
weights can be chosen by unit, whatever lies between the layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.actor.ops import ChannelRule
from qgraph.rl.compress.chain_policy import shared


@dataclass(frozen=True)
class Channels:
    """The channels of a program.

    of      units of each value's last axis (of all numbers of a flattened one)
    groups  units of each layer that can be pruned, by the layer's output
    count   of all units, those of the observation too
    """

    of: dict[str, Array]
    groups: dict[str, Array]
    count: int


def channels_of(program: ActorProgram) -> Channels:
    """Number the channels; layers keep units that reach an output, a mean, a sum or a place."""
    shapes = program.shapes()
    of = {program.observation: np.arange(shapes[program.observation][-1])}
    count = len(of[program.observation])
    kept, made = [of[program.observation]], {}
    common = shared(program)
    for step in program.steps:
        inputs = [of[name] for name in step.inputs]
        if step.definition.channel_ids is None:
            width = shapes[step.output][-1]
            of[step.output] = np.arange(count, count + width)
            count += width
        else:
            numbered = [shapes[name] for name in step.inputs]
            of[step.output] = step.definition.channel_ids(inputs, numbered)
        if step.definition.layer:
            made[step.output] = of[step.output]
        if not _alike(step, inputs):
            kept += inputs
        if common.intersection(step.weights):
            kept += [*inputs, of[step.output]]
    kept += [of[name] for name in program.outputs]
    fixed = np.unique(np.concatenate(kept))
    groups = {name: units for name, units in made.items() if not np.isin(units, fixed).any()}
    return Channels(of, groups, count)


def without(
    program: ActorProgram, weights: dict[str, Array], channels: Channels, removed: Array
) -> tuple[ActorProgram, dict[str, Array]]:
    """The program and the weights without the units `removed`, bool [count]."""
    left, shapes = dict(weights), program.shapes()
    for step in program.steps:
        if not step.weights:
            continue
        stays = [~removed[channels.of[name]] for name in (*step.inputs, step.output)]
        if step.definition.layer:
            kernel, bias = step.weights
            left[kernel] = weights[kernel][..., stays[0], :][..., stays[-1]]
            left[bias] = weights[bias][stays[-1]]
        else:
            width = shapes[step.output][-1]
            left.update({name: weights[name][stays[-1][:width]] for name in step.weights})
    made = replace(program, weight_shapes={k: left[k].shape for k in program.weight_shapes})
    return made, left


def _alike(step: ActorStep, inputs: list[Array]) -> bool:
    """Whether channels can be removed: all have one function, and those that meet are the same."""
    rule = step.definition.channels
    if rule is ChannelRule.PAIRED:
        return np.array_equal(inputs[0], inputs[1])
    return rule not in (ChannelRule.MIXED, ChannelRule.PLACED)
