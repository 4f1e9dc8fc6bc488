"""A stable-baselines3 policy as an actor program, whose weights can be read at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.vec_env import VecNormalize

from qgraph.errors import UnsupportedError
from qgraph.foreign import TorchModule
from qgraph.ir.types import Array
from qgraph.rl.actor.program import ActorProgram
from qgraph.rl.actor.program_state import ProgramState
from qgraph.rl.environments.flat_spaces import FlatSpace, flat_space
from qgraph.rl.head import Head
from qgraph.rl.policy.observation_columns import (
    ObservationColumns,
    ObservationPart,
    part_of,
)
from qgraph.rl.pytorch.modules import Read, numbers
from qgraph.rl.sb3.check import check_actions
from qgraph.rl.sb3.families import Family, family_of
from qgraph.rl.sb3.modules import Sb3ModuleReader
from qgraph.rl.sb3.normalizer import Normalizer, normalizer_of


@dataclass(frozen=True)
class Sb3Policy:
    """The program of a model's actor. Its weights are read from the model at any time.

    Attributes:
        program: The program.
        parameters: A function for each weight, which reads it from the model.
        make_head: A function that reads the head from the model.
        images: Whether observations of the model are images [c, h, w]; the program takes [h, w, c].
        normalizer: The first steps of the program; None if the policy takes observations unchanged.
        flat: The parts of observations that are dictionaries or choices, which become one row of
            numbers; None for arrays of numbers.
        columns: The parts and the states of the program's observation; None for a single array.

    Examples:
        >>> from stable_baselines3 import PPO
        >>> from qgraph.rl.sb3 import read
        >>> policy = read(PPO("MlpPolicy", "CartPole-v1", device="cpu"))
        >>> policy.program.shape, policy.head.kind
        ((4,), 'categorical')
    """

    program: ActorProgram
    parameters: Mapping[str, Read]
    make_head: Callable[[], Head]
    images: bool
    normalizer: Normalizer | None = None
    flat: FlatSpace | None = None
    columns: ObservationColumns | None = None

    @property
    def states(self) -> tuple[ProgramState, ...]:
        """The states of a recurrent policy."""
        return self.program.states

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation, without states."""
        return self.program.shape if self.columns is None else self.columns.shape

    @property
    def weights(self) -> dict[str, Array]:
        """The current weights of the model, float32, by name."""
        return {
            name: np.ascontiguousarray(read(), np.float32) for name, read in self.parameters.items()
        }

    @property
    def head(self) -> Head:
        """The current head of the model. Its deviations change in training."""
        return self.make_head()

    def to_program_layout(self, observations: Array | Mapping[str, Array]) -> Array:
        """Bring observations of the model into the layout of the program.

        Args:
            observations: Observations of the model, [n, ...], or a dictionary of them.

        Returns:
            Observations of the program, float32 [n, *shape], without states.
        """
        if self.flat is not None:
            return self.flat.rows(observations)
        assert not isinstance(observations, Mapping)
        found = np.asarray(observations, np.float32)
        if self.images:
            return np.ascontiguousarray(np.moveaxis(found, 1, -1))
        return found.reshape(len(found), *self.shape)


def read(model: TorchModule, normalizer: VecNormalize | None = None) -> Sb3Policy:
    """Read the actor of a model, from observations of its environment to actions.

    A `VecNormalize` around the environment becomes part of the program. Actions are compared with
    those of `model.predict(..., deterministic=True)` on random observations.

    Args:
        model: The model.
        normalizer: The `VecNormalize` of a model that was loaded without its environment.

    Returns:
        The program, whose weights are read from the model at any time.

    Raises:
        UnsupportedError: Actors do not support a part of the model, or actions differ. The error
            names the module.

    Examples:
        >>> from stable_baselines3 import PPO
        >>> from qgraph.rl.sb3 import read
        >>> sorted(read(PPO("MlpPolicy", "CartPole-v1", device="cpu")).weights)[:1]
        ['action_net.bias']
    """
    return _read(model, normalizer_of_box(model, normalizer))


def read_normalized(model: TorchModule) -> Sb3Policy:
    """The actor on normalized observations, which a model gets in training."""
    return _read(model, None)


def normalizer_of_box(model: TorchModule, given: VecNormalize | None = None) -> Normalizer | None:
    """The normalizer of a model; raises UnsupportedError for observations that none fits."""
    return normalizer_of(model, given, flat_of(model.observation_space))


def flat_of(space: spaces.Space[object]) -> FlatSpace | None:
    """The parts of a space that is not one array of numbers. Raises UnsupportedError."""
    try:
        return flat_space(space)
    except ValueError as error:
        raise UnsupportedError(
            f"observations are {space}: {error}",
            hint="flatten them by a wrapper of the environment, and train again",
        ) from None


def _read(model: TorchModule, normalizer: Normalizer | None) -> Sb3Policy:
    policy, space = model.policy, model.observation_space
    flat = flat_of(space)
    if getattr(model, "use_sde", False) or getattr(policy, "use_sde", False):
        raise UnsupportedError("state-dependent exploration (use_sde) has no actor program")
    family = family_of(policy)
    head = _head_of(policy, family)
    images = bool(flat is None and is_image_space(space) and policy.normalize_images)
    states = family.states(policy)
    if states and images:
        raise UnsupportedError(
            "a recurrent policy on images has no actor program",
            hint="recurrent policies take vectors; quantize the network by `qgraph quantize`",
        )
    shape = space.shape if flat is None else (flat.size,)
    columns = _columns(shape, flat, states)
    shape = shape if columns is None else (columns.observed,)
    plain = _program(shape, images, policy, family, None, states)
    found = Sb3Policy(plain.program(), plain.parameters, head, plain.images, None, flat, columns)
    check_actions(model, found.program, found.weights, found.head, found.to_program_layout)
    if normalizer is None:
        return found
    whole = _program(shape, images, policy, family, normalizer, states)
    return replace(
        found, program=whole.program(), parameters=whole.parameters, normalizer=normalizer
    )


def _columns(
    shape: tuple[int, ...], flat: FlatSpace | None, states: tuple[ProgramState, ...]
) -> ObservationColumns | None:
    if flat is None:
        return ObservationColumns(part_of(shape, "observation"), states) if states else None
    parts = tuple(
        ObservationPart(part.name or "observation", (part.size,) if part.options else part.shape)
        for part in flat.parts
    )
    return ObservationColumns(parts, states)


def _program(
    shape: tuple[int, ...],
    images: bool,
    policy: TorchModule,
    family: Family,
    normalizer: Normalizer | None,
    states: tuple[ProgramState, ...] = (),
) -> Sb3ModuleReader:
    reader = Sb3ModuleReader(shape, images, states)
    if normalizer is not None:
        reader.normalize(normalizer)
    family.read(reader, policy)
    return reader


def _head_of(policy: TorchModule, family: Family) -> Callable[[], Head]:
    space, kind = policy.action_space, family.head(policy)
    if kind is None or not _fits(space):
        raise UnsupportedError(
            f"actions are {space}; no head fits them",
            hint="one of several from 0, choices from 0, switches, or a vector of numbers",
        )
    ends = (space.low, space.high) if isinstance(space, spaces.Box) else ((), ())
    low, high = (tuple(float(x) for x in end) for end in ends)
    choices: tuple[int, ...] = ()
    if isinstance(space, spaces.MultiDiscrete):
        choices = tuple(int(count) for count in space.nvec)
    elif isinstance(space, spaces.MultiBinary):
        choices = (2,) * int(space.shape[0])

    def head() -> Head:
        spread = numbers(policy.log_std) if kind == "gaussian" else ()
        return Head(kind, low, high, tuple(float(x) for x in spread), choices, masks=family.masks)

    return head


def _fits(space: spaces.Space[object]) -> bool:
    """Whether a head chooses such actions."""
    if isinstance(space, spaces.Discrete):
        return int(space.start) == 0
    if isinstance(space, spaces.MultiDiscrete):
        return len(space.shape) == 1 and not np.any(space.start)
    return isinstance(space, spaces.Box | spaces.MultiBinary) and len(space.shape) == 1
