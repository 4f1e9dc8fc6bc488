"""A small policy: program, weights, and the outputs of an actor."""

from __future__ import annotations

import numpy as np

from qgraph.rl.actor import Actor, ActorProgram, ActorStep, Packer

PROGRAM = ActorProgram(
    shape=(3,),
    steps=(
        ActorStep("dense", ("observation",), "a", ("w0", "b0"), {"activation": "relu"}),
        ActorStep("dense", ("a",), "b", ("w1", "b1")),
    ),
    outputs=("b",),
    weight_shapes={"w0": (3, 5), "b0": (5,), "w1": (5, 2), "b1": (2,)},
)
X = np.array([[1.0, -2.0, 0.5]], np.float32)


def drawn(seed: int) -> dict[str, np.ndarray]:
    """Random weights of the program."""
    rng = np.random.default_rng(seed)
    shapes = PROGRAM.weight_shapes.items()
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes}


def outputs(seed: int) -> np.ndarray:
    """An actor's outputs for X with the weights `drawn(seed)`."""
    return Actor(Packer(PROGRAM).pack(drawn(seed)))(X)
