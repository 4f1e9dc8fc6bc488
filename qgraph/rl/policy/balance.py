"""Features of an observation on one range, where a layer quantizes them together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor import Actor, ActorProgram, ActorStep
from qgraph.rl.policy import floats
from qgraph.rl.policy.bias import PackerOf
from qgraph.rl.policy.read import PolicyNetwork

ENOUGH = 1024  # observations to compare on


def balance(network: PolicyNetwork, observations: Array) -> PolicyNetwork | None:
    """The same function with features brought to about -1..1 by powers of two, before dense layers.

    The range that a layer has in each step is otherwise that of the largest feature, and small ones
    lose their bits. In float32 every output stays the same. None where something else than dense
    layers takes the observation: it was normalised already, or is an image.
    """
    program, name = network.program, network.program.observation
    takers = [step for step in program.steps if name in step.inputs]
    if not takers or any(step.op != "dense" for step in takers):
        return None
    factors = power_above(observations).astype(np.float32)
    scaled, weights = f"{name}/scaled", dict(network.weights)
    weights.update({f"{scaled}/scale": 1 / factors, f"{scaled}/offset": np.zeros_like(factors)})
    for step in takers:
        kernel = step.weights[0]
        weights[kernel] = np.asarray(network.weights[kernel], np.float32) * factors[:, None]
    affine = ActorStep("affine", (name,), scaled, (f"{scaled}/scale", f"{scaled}/offset"))
    others = [
        replace(step, inputs=tuple(scaled if i == name else i for i in step.inputs))
        for step in program.steps
    ]
    shapes = {name: array.shape for name, array in weights.items()}
    steps = (affine, *others)
    made = ActorProgram(program.shape, steps, program.outputs, shapes, program.observation)
    return replace(network, program=made, weights=weights)


def nearer(
    network: PolicyNetwork,
    other: PolicyNetwork,
    observations: Array,
    packer: PackerOf,
) -> PolicyNetwork:
    """That of two networks of one function whose packed form is nearer to it."""
    chosen = np.linspace(0, len(observations) - 1, min(ENOUGH, len(observations))).astype(int)
    seen = np.asarray(observations[chosen], np.float32)
    wanted = floats.run(network.program, network.weights, seen)[network.program.outputs[0]]

    def error(one: PolicyNetwork) -> float:
        block = packer(one.program).pack(one.weights)
        return float(((Actor(block)(seen) - wanted) ** 2).mean())

    return min((network, other), key=error)


def power_above(observations: Array) -> Array:
    """The power of two above the largest number of each feature; 1 where only 0 was seen."""
    found = np.asarray(observations, np.float64)
    largest = np.abs(found).max(tuple(range(found.ndim - 1)))
    return np.asarray(np.exp2(np.ceil(np.log2(np.where(largest > 0, largest, 1)))))
