"""The observation normalizer of a model: a `VecNormalize` around its environment."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from gymnasium.wrappers import NormalizeObservation
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnvWrapper,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
)

from qgraph.errors import UnsupportedError
from qgraph.foreign import TorchModule, TorchTensor
from qgraph.ir.types import Array
from qgraph.rl.environments.flat_spaces import FlatSpace

# Wrappers that pass observations of vectors on as they are.
TRANSPARENT = (VecCheckNan, VecMonitor, VecTransposeImage, VecVideoRecorder)


class Normalizer:
    """clip((x - mean) / sqrt(variance + epsilon), -limit, limit), with the current statistics.

    Parts of a dictionary that the wrapper does not normalize stay as they are. Raises
    UnsupportedError for statistics of observations of another shape.
    """

    def __init__(
        self, wrapper: VecNormalize, shape: tuple[int, ...], flat: FlatSpace | None = None
    ) -> None:
        self.wrapper, self.flat = wrapper, flat
        statistics = wrapper.obs_rms
        if statistics is None or (isinstance(statistics, dict) and flat is None):
            raise UnsupportedError("VecNormalize has no statistics of such observations")
        wanted = {} if flat is None else {part.name: part.shape for part in flat.parts}
        given = statistics if isinstance(statistics, dict) else {"": statistics}
        for name, one in given.items():
            found = tuple(np.shape(one.mean))
            if found != wanted.get(name, shape):
                raise UnsupportedError(
                    f"VecNormalize has observations of shape {list(found)}, "
                    f"the policy of {list(wanted.get(name, shape))}",
                    hint="put VecNormalize outermost: VecNormalize(VecFrameStack(...))",
                )

    def scale(self) -> Array:
        """The factor of each number of an observation, float64 [n]."""
        return self._each(lambda one: 1 / np.sqrt(one.var + self.wrapper.epsilon), 1.0)

    def offset(self) -> Array:
        """The offset of each number behind its factor, float64 [n]."""
        return self._each(
            lambda one: -one.mean * (1 / np.sqrt(one.var + self.wrapper.epsilon)), 0.0
        )

    def limits(self) -> Array:
        """The bound of each number behind its offset, float32 [n]."""
        limit = float(self.wrapper.clip_obs)
        largest = float(np.finfo(np.float32).max)
        return self._each(lambda one: np.full(np.shape(one.mean), limit), largest).astype(
            np.float32
        )

    def tensor(
        self, observation: TorchTensor | dict[str, TorchTensor]
    ) -> TorchTensor | dict[str, TorchTensor]:
        """Normalize a torch tensor [n, *shape], or a dictionary of them."""
        if isinstance(observation, dict):
            statistics = self.wrapper.obs_rms
            return {
                name: self._tensor(x, statistics[name]) if name in statistics else x
                for name, x in observation.items()
            }
        return self._tensor(observation, self.wrapper.obs_rms)

    def _tensor(self, x: TorchTensor, statistics: TorchModule) -> TorchTensor:
        mean = x.new_tensor(statistics.mean)
        deviation = x.new_tensor(np.sqrt(statistics.var + self.wrapper.epsilon))
        limit = float(self.wrapper.clip_obs)
        return ((x - mean) / deviation).clamp(-limit, limit)

    def _each(self, of: Callable[[TorchModule], Array], otherwise: float) -> Array:
        statistics = self.wrapper.obs_rms
        if not isinstance(statistics, dict):
            return np.asarray(of(statistics), np.float64).ravel()
        assert self.flat is not None
        parts = [
            np.asarray(of(statistics[part.name]), np.float64).ravel()
            if part.name in statistics
            else np.full(part.size, otherwise)
            for part in self.flat.parts
        ]
        return np.concatenate(parts)


def normalizer_of(
    model: TorchModule, given: VecNormalize | None = None, flat: FlatSpace | None = None
) -> Normalizer | None:
    """The normalizer of observations in front of the policy, or None.

    given: statistics loaded from a file, for a model that has no environment. flat: the parts of
    observations that are not arrays of numbers. Raises UnsupportedError for a normalizer that an
    actor program cannot carry.
    """
    shape = tuple(model.observation_space.shape or ())
    found = [given] if given is not None and given.norm_obs else []
    environment = model.get_env()
    if environment is None or given is not None:
        return Normalizer(found[0], shape, flat) if found else None
    if any(environment.env_is_wrapped(NormalizeObservation)):
        raise UnsupportedError(
            "observations are normalized by gymnasium's NormalizeObservation, "
            "whose statistics are not read",
            hint="train with stable_baselines3's VecNormalize",
        )
    before = None  # the first wrapper around a VecNormalize that may change observations
    while isinstance(environment, VecEnvWrapper):
        if isinstance(environment, VecNormalize):
            if environment.norm_obs:
                found.append(environment)
        elif not found and not isinstance(environment, TRANSPARENT):
            before = before or environment
        environment = environment.venv
    if not found:
        return None
    if len(found) > 1 or before is not None or type(found[0]) is not VecNormalize:
        odd = before or found[0]
        raise UnsupportedError(
            f"`{type(odd).__name__}` wraps VecNormalize"
            if before is not None
            else "observations are normalized by more than one plain VecNormalize",
            hint="one VecNormalize outermost is carried into the policy",
        )
    return Normalizer(found[0], shape, flat)
