"""Check that a program acts as the model that it was read from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from gymnasium import spaces

from qgraph.errors import UnsupportedError
from qgraph.foreign import GymObject, TorchModule
from qgraph.ir.types import Array
from qgraph.rl.actor.program import ActorProgram, Weights
from qgraph.rl.head import Head
from qgraph.rl.policy import floats
from qgraph.rl.policy.recurrent_outputs import RecurrentOutputs
from qgraph.rl.sb3.aware import in_float

VECTORS, IMAGES = 64, 4  # the number of random observations
STEPS = 8  # of a policy with states
NEAR = 1e-3  # of the largest output: rounding of float32 in another order


def check_actions(
    model: TorchModule,
    program: ActorProgram,
    weights: Weights,
    head: Head,
    to_program_layout: Callable[[Observations], Array],
) -> None:
    """Compare actions with `model.predict(..., deterministic=True)` on random observations.

    This finds overridden methods and hooks. A policy with states acts for several steps. Raises
    UnsupportedError.
    """
    rng = np.random.default_rng(0)
    training = model.policy.training
    acted = _with_states if program.states else _without_states
    with in_float(model.policy):
        steps = list(acted(model, program, weights, head, to_program_layout, rng))
    model.policy.set_training_mode(training)
    if not all(_are_near(head, outputs, wanted, masks) for outputs, wanted, masks in steps):
        raise UnsupportedError(
            f"the modules of `{type(model.policy).__name__}` do not compute the actions that "
            "`model.predict` gives: something else changes them",
            hint="a method that is overridden, a hook, or a wrapper of a module",
        )


Observations = Array | Mapping[str, Array]
# Outputs of the program, actions of the model, and masks of both.
Acted = tuple[Array, Array, Array | None]


def _without_states(
    model: TorchModule,
    program: ActorProgram,
    weights: Weights,
    head: Head,
    to_program_layout: Callable[[Observations], Array],
    rng: np.random.Generator,
) -> Iterator[Acted]:
    observations = random_observations(model.observation_space, rng)
    rows = to_program_layout(observations)
    outputs = floats.run(program, weights, rows)[program.outputs[0]]
    yield outputs, _predicted(model, observations), None
    if head.masks:
        masks = random_masks(head, len(rows), outputs.shape[1], rng)
        yield outputs, _predicted(model, observations, action_masks=masks), masks


def _with_states(
    model: TorchModule,
    program: ActorProgram,
    weights: Weights,
    head: Head,
    to_program_layout: Callable[[Observations], Array],
    rng: np.random.Generator,
) -> Iterator[Acted]:
    policy = RecurrentOutputs(
        lambda rows: floats.run(program, weights, rows), program.states, program.outputs[0]
    )
    count = len(to_program_layout(random_observations(model.observation_space, rng)))
    states, theirs = policy.first_states(count), None
    starts = np.ones(count, bool)
    for step in range(STEPS):
        observations = random_observations(model.observation_space, rng)
        actions, theirs = model.predict(
            observations, state=theirs, episode_start=starts, deterministic=True
        )
        states[starts] = 0
        outputs, states = policy.step(to_program_layout(observations), states)
        yield outputs, np.asarray(actions), None
        starts = rng.random(count) < (step + 1) / (2 * STEPS)


def _predicted(model: TorchModule, observations: Observations, **masks: Array) -> Array:
    return np.asarray(model.predict(observations, deterministic=True, **masks)[0])


def _are_near(head: Head, outputs: Array, wanted: Array, masks: Array | None) -> bool:
    """Whether actions are those of outputs, up to the rounding of float32."""
    found = head.actions(outputs, None, masks)
    near: Array | float = NEAR * float(np.abs(outputs).max()) + 1e-6
    if not head.integers:
        if head.kind in ("scale", "squashed_gaussian"):
            near = near * np.subtract(head.high, head.low)
        return bool((np.abs(found - wanted) <= near).all())
    if head.kind == "bernoulli":
        return bool((np.abs(outputs)[found != wanted] <= near).all())
    rows = np.arange(len(outputs))
    ours, theirs = (actions.reshape(len(outputs), -1).T for actions in (found, wanted))
    parts = zip(head.parts(outputs), ours, theirs, strict=True)
    apart = [part[rows, mine] - part[rows, other] for part, mine, other in parts]
    valid = True
    if masks is not None:
        places = zip(head.parts(np.asarray(masks)), theirs, strict=True)
        valid = all(part[rows, other].all() for part, other in places)
    return valid and bool((np.stack(apart) <= near).all())


def random_masks(head: Head, count: int, outputs: int, rng: np.random.Generator) -> Array:
    """Masks with at least one valid option in each choice, bool [count, outputs]."""
    masks = rng.random((count, outputs)) < 0.5
    for part in head.parts(masks):
        part[np.arange(count), rng.integers(part.shape[1], size=count)] = True
    return masks


def random_observations(space: GymObject, rng: np.random.Generator) -> Observations:
    """Observations of the space, [n, *shape], without touching its random numbers."""
    if isinstance(space, spaces.Dict):
        found = {name: random_observations(part, rng) for name, part in space.spaces.items()}
        return {name: np.asarray(x) for name, x in found.items()}
    if isinstance(space, spaces.Discrete):
        return np.asarray(rng.integers(space.n, size=VECTORS))
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(rng.integers(space.nvec, size=(VECTORS, len(space.nvec))))
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(2, size=(VECTORS, *space.shape)).astype(np.int8)
    count = VECTORS if len(space.shape) < 3 else IMAGES
    shape = (count, *space.shape)
    if space.dtype == np.uint8:
        return rng.integers(0, 256, shape, np.uint8)
    held = np.clip(rng.normal(size=shape), space.low, space.high)
    low, high = np.maximum(space.low, -10), np.minimum(space.high, 10)
    inside = low < high
    spread = rng.uniform(np.minimum(low, high), high, shape)
    return np.asarray(np.where(inside & (rng.random(shape) < 0.5), spread, held), space.dtype)
