"""Policies whose weights are broadcast."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, ActorStep

OBSERVATION, ACTIONS = 64, 16
POLICIES = {"3x2048": (2048,) * 3, "4096,512,1024": (4096, 512, 1024), "3x256": (256,) * 3}


def dense_policy(
    hidden: Sequence[int], inputs: int = OBSERVATION, outputs: int = ACTIONS
) -> ActorProgram:
    """A network of layers with ReLU, then one with tanh."""
    sizes = (inputs, *hidden, outputs)
    steps, value = [], "observation"
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (k, m) in enumerate(itertools.pairwise(sizes)):
        activation = "relu" if i < len(hidden) else "tanh"
        names = (f"kernel{i}", f"bias{i}")
        shapes |= {names[0]: (k, m), names[1]: (m,)}
        steps.append(ActorStep("dense", (value,), f"layer{i}", names, {"activation": activation}))
        value = f"layer{i}"
    return ActorProgram((inputs,), tuple(steps), (value,), shapes)


def drawn_weights(program: ActorProgram, seed: int = 0) -> dict[str, Array]:
    """Random weights, as in a network that is not trained yet."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name, shape in program.weight_shapes.items():
        spread = 0.0 if len(shape) == 1 else shape[0] ** -0.5
        found[name] = (rng.standard_normal(shape, np.float32) * spread).astype(np.float32)
    return found
