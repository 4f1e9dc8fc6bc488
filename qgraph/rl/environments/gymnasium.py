"""Tasks of gymnasium, and of packages that register tasks with it."""

from __future__ import annotations

from importlib import metadata

import numpy as np

from qgraph.errors import UsageError
from qgraph.foreign import GymObject
from qgraph.ir.types import Array
from qgraph.rl.environments.environment import Action, Actions, Outcome, floats, imported, unknown
from qgraph.rl.environments.flat_spaces import flat_space

WHITE = np.uint8(255)


class Gymnasium:
    """A task that `gymnasium.make` creates."""

    def __init__(self, name: str) -> None:
        gymnasium = imported("gymnasium")
        _register_others(gymnasium, name)
        try:
            self.inner = gymnasium.make(name)
        except gymnasium.error.DependencyNotInstalled as error:
            raise UsageError(f"`{name}` needs more: {error}") from None
        except gymnasium.error.Error as error:
            raise unknown(name, list(gymnasium.registry), str(error)) from None
        except ImportError as error:  # of the module in `module:name`, or of the task's code
            raise UsageError(f"`{name}` cannot be imported: {error}") from None
        space = self.inner.observation_space
        try:
            self._flat = flat_space(space)
        except ValueError as error:
            raise UsageError(
                f"observations of `{name}` are {space}, which is not supported: {error}"
            ) from None
        self.shape = tuple(space.shape) if self._flat is None else (self._flat.size,)
        # Boolean images, as in MinAtar, are black and white.
        self._black_and_white = space.dtype == bool and len(self.shape) == 3
        of_bytes = space.dtype == np.uint8 or self._black_and_white
        self.dtype = np.dtype(np.uint8 if of_bytes else np.float32)
        self.actions = _actions_of(self.inner.action_space, name)

    def reset(self, seed: int | None = None) -> Array:
        observation, _ = self.inner.reset(seed=seed)
        return self._array(observation)

    def step(self, action: Action) -> Outcome:
        if self.actions.discrete:
            action = int(action)
        observation, reward, ended, cut, _ = self.inner.step(action)
        return Outcome(
            self._array(observation),
            float(reward),
            0.0 if ended else 1.0,
            bool(ended or cut),
        )

    def mask(self) -> Array | None:
        """The valid actions now, bool [outputs], as sb3-contrib's `action_masks`; None without."""
        try:
            given = self.inner.get_wrapper_attr("action_masks")()
        except AttributeError:
            return None
        return np.asarray(given, bool).reshape(-1)

    def close(self) -> None:
        self.inner.close()

    def _array(self, observation: Array) -> Array:
        """A copy, since an environment may write its next observation into the same memory."""
        if self._flat is not None:
            return self._flat.row(observation)
        array = np.array(observation, self.dtype)
        return array * WHITE if self._black_and_white else array


def _register_others(gymnasium: GymObject, name: str) -> None:
    """Call the entry point `gymnasium.envs` of a package, which registers its tasks.

    Versions of gymnasium before 1.0 called these entry points on import.
    """
    space = name.partition("/")[0] + "/"
    if any(known.startswith(space) for known in gymnasium.registry):
        return
    for entry in metadata.entry_points(group="gymnasium.envs"):
        if space == f"{entry.name}/":
            entry.load()()


def _actions_of(space: GymObject, name: str) -> Actions:
    """The actions of a space. Raises UsageError for a space that no head fits."""
    if hasattr(space, "n") and getattr(space, "start", 0) == 0 and space.shape == ():
        return Actions(count=int(space.n))
    if hasattr(space, "nvec") and len(space.shape) == 1 and not np.any(space.start):
        return Actions(choices=tuple(int(count) for count in space.nvec))
    if hasattr(space, "n") and len(space.shape) == 1:  # switches
        return Actions(choices=(2,) * int(space.shape[0]))
    if (
        hasattr(space, "low")
        and len(space.shape) == 1
        and np.isfinite([space.low, space.high]).all()
    ):
        return Actions(low=floats(space.low), high=floats(space.high))
    raise UsageError(
        f"actions of `{name}` are {space}, which is not supported",
        hint="supported: one of several actions, a vector of choices or of switches, or a vector "
        "of numbers with bounds",
    )
