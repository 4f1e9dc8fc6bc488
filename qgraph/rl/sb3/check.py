"""Check that a program acts as the model that it was read from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from gymnasium import spaces

from qgraph.errors import UnsupportedError
from qgraph.foreign import TorchModule
from qgraph.ir.types import Array
from qgraph.rl.actor.program import ActorProgram, Weights
from qgraph.rl.head import Head
from qgraph.rl.policy import floats
from qgraph.rl.sb3.aware import in_float

VECTORS, IMAGES = 64, 4  # the number of random observations
NEAR = 1e-3  # of the largest output: rounding of float32 in another order


def check_actions(
    model: TorchModule,
    program: ActorProgram,
    weights: Weights,
    head: Head,
    to_program_layout: Callable[[Array], Array],
) -> None:
    """Compare actions with `model.predict(..., deterministic=True)` on random observations.

    This finds overridden methods and hooks. Raises UnsupportedError.
    """
    observations = _random(model.observation_space)
    training = model.policy.training
    with in_float(model.policy):
        wanted = np.asarray(model.predict(observations, deterministic=True)[0])
    model.policy.set_training_mode(training)
    outputs = floats.run(program, weights, to_program_layout(observations))[program.outputs[0]]
    found = head.actions(outputs)
    near: Array | float = NEAR * float(np.abs(outputs).max()) + 1e-6
    if head.discrete:
        rows = np.arange(len(outputs))
        apart = outputs[rows, found] - outputs[rows, wanted]
    else:
        apart = np.abs(found - wanted)
        if head.kind in ("scale", "squashed_gaussian"):
            near = near * np.subtract(head.high, head.low)
    if not (apart <= near).all():
        raise UnsupportedError(
            f"the modules of `{type(model.policy).__name__}` do not compute the actions that "
            "`model.predict` gives: something else changes them",
            hint="a method that is overridden, a hook, or a wrapper of a module",
        )


def _random(space: spaces.Box) -> Array:
    """Observations of the space, [n, *shape], without touching its random numbers."""
    rng = np.random.default_rng(0)
    count = VECTORS if len(space.shape) == 1 else IMAGES
    shape = (count, *space.shape)
    if space.dtype == np.uint8:
        return rng.integers(0, 256, shape, np.uint8)
    held = np.clip(rng.normal(size=shape), space.low, space.high)
    low, high = np.maximum(space.low, -10), np.minimum(space.high, 10)
    inside = low < high
    spread = rng.uniform(np.minimum(low, high), high, shape)
    return np.asarray(np.where(inside & (rng.random(shape) < 0.5), spread, held), space.dtype)
