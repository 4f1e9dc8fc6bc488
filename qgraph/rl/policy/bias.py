"""Correction of the biases of last layers, so that packed outputs are right on average.

Rounded kernels shift each output by a nearly constant amount, which decides between action values
that are close together. The mean error is added to the bias instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor import Actor, ActorProgram, ActorStep, Packer
from qgraph.rl.actor.ends import last_layers
from qgraph.rl.actor.ops import Activation
from qgraph.rl.policy import floats
from qgraph.rl.policy.read import PolicyNetwork

MIN_OBSERVATIONS = 16  # observations; the mean of fewer is not reliable
MAX_OBSERVATIONS = 2048  # observations that are run
BATCH = 64  # observations that run together

PackerOf = Callable[[ActorProgram], Packer]


def corrected(network: PolicyNetwork, observations: Array, packer: PackerOf) -> PolicyNetwork:
    """The network with biases for which its packed form has the float form's mean outputs.

    observations: [n, *shape]; fewer than 16 change nothing. packer: makes the packer of a program.
    Each last layer is corrected, in order, before its activation.
    """
    if len(observations) < MIN_OBSERVATIONS:
        return network
    chosen = np.linspace(0, len(observations) - 1, min(MAX_OBSERVATIONS, len(observations))).astype(
        int
    )
    seen = np.asarray(observations[chosen], np.float32)
    weights = dict(network.weights)
    for step in last_layers(network.program):
        probe, name = _before_activation(network.program, step)
        actor = Actor(packer(probe).pack(weights))
        error = np.zeros(network.program.weight_shapes[step.weights[1]])
        parts = [seen[i : i + BATCH] for i in range(0, len(seen), BATCH)]
        for part in parts:
            apart = floats.run(probe, network.weights, part)[name] - actor(part)
            error += apart.reshape(-1, apart.shape[-1]).mean(0, np.float64) * len(part)
        weights[step.weights[1]] = (weights[step.weights[1]] + error / len(seen)).astype(np.float32)
    return replace(network, weights=weights)


def _before_activation(program: ActorProgram, layer: ActorStep) -> tuple[ActorProgram, str]:
    """The program whose first output is a layer's value before its activation, and its name.

    Next states stay outputs.
    """
    name = f"{layer.output}/before activation"
    linear = replace(layer.with_attrs(activation=Activation.LINEAR), output=name)
    activation = {"activation": layer.activation, "alpha": layer.alpha}
    after = ActorStep("activate", (name,), layer.output, (), activation)
    steps: list[ActorStep] = []
    for step in program.steps:
        steps += [linear, after] if step is layer else [step]
    outputs = (name, *(state.output for state in program.states))
    return replace(program, steps=tuple(steps), outputs=outputs), name
