"""A stable-baselines3 policy as an actor program, whose weights can be read at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.vec_env import VecNormalize

from qgraph.errors import UnsupportedError
from qgraph.foreign import TorchModule
from qgraph.ir.types import Array
from qgraph.rl.actor.program import ActorProgram
from qgraph.rl.head import Head
from qgraph.rl.sb3.check import check_actions
from qgraph.rl.sb3.families import Family, family_of
from qgraph.rl.sb3.modules import ModuleReader, Read, numbers
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

    def to_program_layout(self, observations: Array) -> Array:
        """Bring observations of the model into the layout of the program.

        Args:
            observations: Observations of the model, [n, ...].

        Returns:
            Observations of the program, float32 [n, *shape].
        """
        found = np.asarray(observations, np.float32)
        return np.ascontiguousarray(np.moveaxis(found, 1, -1)) if self.images else found


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
    """The normalizer of a model; raises UnsupportedError for observations that are not arrays."""
    if not isinstance(model.observation_space, spaces.Box):
        raise UnsupportedError(
            f"observations are {model.observation_space}; only arrays are supported"
        )
    return normalizer_of(model, given)


def _read(model: TorchModule, normalizer: Normalizer | None) -> Sb3Policy:
    policy, space = model.policy, model.observation_space
    if not isinstance(space, spaces.Box):
        raise UnsupportedError(f"observations are {space}; only arrays are supported")
    if getattr(model, "use_sde", False) or getattr(policy, "use_sde", False):
        raise UnsupportedError("state-dependent exploration (use_sde) has no actor program")
    family = family_of(policy)
    head = _head_of(policy, family)
    images = bool(is_image_space(space) and policy.normalize_images)
    plain = _program(space.shape, images, policy, family, None)
    found = Sb3Policy(plain.program(), plain.parameters, head, plain.images)
    check_actions(model, found.program, found.weights, found.head, found.to_program_layout)
    if normalizer is None:
        return found
    whole = _program(space.shape, images, policy, family, normalizer)
    return Sb3Policy(whole.program(), whole.parameters, head, whole.images, normalizer)


def _program(
    shape: tuple[int, ...],
    images: bool,
    policy: TorchModule,
    family: Family,
    normalizer: Normalizer | None,
) -> ModuleReader:
    reader = ModuleReader(shape, images)
    if normalizer is not None:
        reader.normalize(normalizer)
    family.read(reader, policy)
    return reader


def _head_of(policy: TorchModule, family: Family) -> Callable[[], Head]:
    space, kind = policy.action_space, family.head(policy)
    discrete = isinstance(space, spaces.Discrete) and int(space.start) == 0
    if kind is None or not (discrete or (isinstance(space, spaces.Box) and len(space.shape) == 1)):
        raise UnsupportedError(f"actions are {space}; no head fits them")
    ends = ((), ()) if discrete else (space.low, space.high)
    low, high = (tuple(float(x) for x in end) for end in ends)

    def head() -> Head:
        spread = numbers(policy.log_std) if kind == "gaussian" else ()
        return Head(kind, low, high, tuple(float(x) for x in spread))

    return head
