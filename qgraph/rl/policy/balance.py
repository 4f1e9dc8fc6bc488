"""Features of an observation brought to one range, since a layer quantizes them together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor import Actor, ActorProgram, ActorStep
from qgraph.rl.policy import floats
from qgraph.rl.policy.bias import PackerOf
from qgraph.rl.policy.read import PolicyNetwork

MAX_OBSERVATIONS = 1024  # observations to compare on


def balance(network: PolicyNetwork, observations: Array) -> PolicyNetwork | None:
    """The same function with features scaled to about -1..1 by powers of two, before dense layers.

    Otherwise a layer's range at each step is that of the largest feature, and small features lose
    their bits. In float32 every output stays the same. None if other steps than dense layers use
    the observation: it is normalised already, an image, or has parts that steps select.
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
    balanced = ActorProgram(program.shape, steps, program.outputs, shapes, program.observation)
    return replace(network, program=balanced, weights=weights)


def nearer(
    network: PolicyNetwork,
    other: PolicyNetwork,
    observations: Array,
    packer: PackerOf,
) -> PolicyNetwork:
    """The one of two networks with the same function whose packed form is nearer to it."""
    chosen = np.linspace(0, len(observations) - 1, min(MAX_OBSERVATIONS, len(observations))).astype(
        int
    )
    seen = np.asarray(observations[chosen], np.float32)
    wanted = floats.run(network.program, network.weights, seen)[network.program.outputs[0]]

    def error(one: PolicyNetwork) -> float:
        block = packer(one.program).pack(one.weights)
        return float(((Actor(block)(seen) - wanted) ** 2).mean())

    return min((network, other), key=error)


def power_above(observations: Array) -> Array:
    """The power of two above the largest number of each feature; 1 if it is always 0."""
    found = np.asarray(observations, np.float64)
    largest = np.abs(found).max(tuple(range(found.ndim - 1)))
    return np.asarray(np.exp2(np.ceil(np.log2(np.where(largest > 0, largest, 1)))))
