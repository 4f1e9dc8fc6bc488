"""The observation normalizer of a model: a `VecNormalize` around its environment."""

from __future__ import annotations

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

# Wrappers that pass observations of vectors on as they are.
TRANSPARENT = (VecCheckNan, VecMonitor, VecTransposeImage, VecVideoRecorder)


class Normalizer:
    """clip((x - mean) / sqrt(variance + epsilon), -limit, limit), with the current statistics.

    Raises UnsupportedError for statistics of observations of another shape.
    """

    def __init__(self, wrapper: VecNormalize, shape: tuple[int, ...]) -> None:
        if wrapper.obs_rms is None or isinstance(wrapper.obs_rms, dict):
            raise UnsupportedError(
                "VecNormalize over dictionaries of observations is not supported"
            )
        if np.shape(wrapper.obs_rms.mean) != shape:
            raise UnsupportedError(
                f"VecNormalize has observations of shape {list(np.shape(wrapper.obs_rms.mean))}, "
                f"the policy of {list(shape)}",
                hint="put VecNormalize outermost: VecNormalize(VecFrameStack(...))",
            )
        self.wrapper = wrapper

    def scale(self) -> Array:
        found = 1 / np.sqrt(self.wrapper.obs_rms.var + self.wrapper.epsilon)
        return np.asarray(found, np.float64).ravel()

    def offset(self) -> Array:
        return np.asarray(-self.wrapper.obs_rms.mean.ravel() * self.scale())

    def limit(self) -> float:
        return float(self.wrapper.clip_obs)

    def tensor(self, observation: TorchTensor) -> TorchTensor:
        """Normalize a torch tensor [n, *shape]."""
        statistics = self.wrapper.obs_rms
        mean = observation.new_tensor(statistics.mean)
        deviation = observation.new_tensor(np.sqrt(statistics.var + self.wrapper.epsilon))
        return ((observation - mean) / deviation).clamp(-self.limit(), self.limit())


def normalizer_of(model: TorchModule, given: VecNormalize | None = None) -> Normalizer | None:
    """The normalizer of observations in front of the policy, or None.

    given: statistics loaded from a file, for a model that has no environment. Raises
    UnsupportedError for a normalizer that an actor program cannot carry.
    """
    shape = tuple(model.observation_space.shape)
    found = [given] if given is not None and given.norm_obs else []
    environment = model.get_env()
    if environment is None or given is not None:
        return Normalizer(found[0], shape) if found else None
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
    return Normalizer(found[0], shape)
