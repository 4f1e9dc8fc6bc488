"""Environments by name: `CartPole-v1`, `dm_control:cartpole-balance`, `ALE/Pong-v5`.

All look the same: observations are arrays of one shape, flat where they were dictionaries; an
action is a number of one of `count`, or an array within low..high.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Protocol

import numpy as np

from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.rl.head import Head

DM_CONTROL, ATARI = "dm_control:", "ALE/"
WHITE = np.uint8(255)
FRAMES = 4  # that an Atari observation has, the newest last


@dataclass(frozen=True)
class Actions:
    """What an environment takes: one of `count`, or numbers within low..high (count 0)."""

    count: int = 0
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def discrete(self) -> bool:
        return self.count > 0

    def check(self, head: Head, outputs: int) -> None:
        """Raises UsageError where a head with so many outputs does not make such actions."""
        if head.discrete != self.discrete:
            kinds = ("numbers", "one of several")
            raise UsageError(
                f"a `{head.kind}` head chooses {kinds[head.discrete]}, "
                f"but the environment takes {kinds[self.discrete]}",
                hint="another head, or another environment",
            )
        wanted = self.count or len(self.low) * (1 + (head.kind == "squashed_gaussian"))
        if outputs != wanted:
            raise UsageError(f"the policy has {outputs} outputs, the environment takes {wanted}")


@dataclass(frozen=True)
class Outcome:
    """What a step brings. `discount` is 0 where the episode ended for good; `over`: it ended."""

    observation: Array
    reward: float
    discount: float
    over: bool


class Environment(Protocol):
    """`shape` and `dtype` are of one observation: float32, or uint8 for images."""

    shape: tuple[int, ...]
    dtype: Any
    actions: Actions

    def reset(self, seed: int | None = None) -> Array: ...

    def step(self, action: Any) -> Outcome: ...

    def close(self) -> None: ...


def make(name: str) -> Environment:
    """The environment of that name. Raises UsageError where there is none."""
    if name.startswith(DM_CONTROL):
        return _DmControl(name)
    if name.startswith(ATARI):
        return _Atari(name)
    return _Gymnasium(name)


class _Gymnasium:
    def __init__(self, name: str) -> None:
        gymnasium = _imported("gymnasium", "rl")
        _register_others(gymnasium, name)
        try:
            self.inner = gymnasium.make(name)
        except gymnasium.error.DependencyNotInstalled as error:
            raise UsageError(f"`{name}` needs more: {error}") from None
        except gymnasium.error.Error as error:
            raise _unknown(name, list(gymnasium.registry), str(error)) from None
        space = self.inner.observation_space
        if not isinstance(space, gymnasium.spaces.Box):
            raise UsageError(f"observations of `{name}` are {space}; only arrays are handled")
        self.shape = tuple(space.shape)
        # Images of booleans, as MinAtar has, are black and white.
        self._black_and_white = space.dtype == bool and len(self.shape) == 3
        of_bytes = space.dtype == np.uint8 or self._black_and_white
        self.dtype = np.dtype(np.uint8 if of_bytes else np.float32)
        self.actions = _actions_of(self.inner.action_space, name)

    def reset(self, seed: int | None = None) -> Array:
        observation, _ = self.inner.reset(seed=seed)
        return self._array(observation)

    def step(self, action: Any) -> Outcome:
        if self.actions.discrete:
            action = int(action)
        observation, reward, ended, cut, _ = self.inner.step(action)
        return Outcome(
            self._array(observation),
            float(reward),
            0.0 if ended else 1.0,
            bool(ended or cut),
        )

    def close(self) -> None:
        self.inner.close()

    def _array(self, observation: Any) -> Array:
        array = np.asarray(observation, self.dtype)
        return array * WHITE if self._black_and_white else array


class _DmControl:
    """A task of dm_control's suite; its observations are put into one row, in their order."""

    dtype = np.dtype(np.float32)

    def __init__(self, name: str) -> None:
        os.environ.setdefault("MUJOCO_GL", "disable")  # nothing is drawn
        suite = _imported("dm_control.suite", "rl")
        domain, _, task = name.removeprefix(DM_CONTROL).partition("-")
        if (domain, task) not in suite.ALL_TASKS:
            raise _unknown(name, [f"{DM_CONTROL}{a}-{b}" for a, b in suite.ALL_TASKS])
        self.inner = suite.load(domain, task, task_kwargs={"random": 0})
        spec = self.inner.action_spec()
        self.actions = Actions(low=tuple(map(float, spec.minimum)), high=_floats(spec.maximum))
        self.shape = self.reset().shape

    def reset(self, seed: int | None = None) -> Array:
        if seed is not None:
            self.inner.task.random.seed(seed)
        return self._row(self.inner.reset().observation)

    def step(self, action: Any) -> Outcome:
        found = self.inner.step(action)
        return Outcome(
            self._row(found.observation), float(found.reward), float(found.discount), found.last()
        )

    def close(self) -> None:
        self.inner.close()

    @staticmethod
    def _row(observation: Mapping[str, Array]) -> Array:
        return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float32)


class _Atari:
    """84 x 84 grey, four frames as channels, as in the DQN papers; rewards are clipped to +-1."""

    dtype = np.dtype(np.uint8)

    def __init__(self, name: str) -> None:
        emulator = _imported("ale_py", "atari")
        games = _imported("ale_py.roms", "atari").get_all_rom_ids()
        game = "".join(
            f"_{letter.lower()}" if letter.isupper() else letter
            for letter in name.removeprefix(ATARI).partition("-")[0]
        ).lstrip("_")
        if game not in games:
            raise _unknown(name, [ATARI + _title(g) + "-v5" for g in games])
        self.inner = emulator.vector_env.AtariVectorEnv(
            game=game, num_envs=1, num_threads=1, stack_num=FRAMES
        )
        self.shape: tuple[int, ...] = (84, 84, FRAMES)
        self.actions = Actions(count=int(self.inner.single_action_space.n))

    def reset(self, seed: int | None = None) -> Array:
        observations, _ = self.inner.reset(seed=seed)
        return self._image(observations)

    def step(self, action: Any) -> Outcome:
        observations, rewards, ended, cut, _ = self.inner.step(np.array([action]))
        over = bool(ended[0] or cut[0])
        return Outcome(self._image(observations), float(rewards[0]), 0.0 if ended[0] else 1.0, over)

    def close(self) -> None:
        self.inner.close()

    @staticmethod
    def _image(observations: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(observations[0], 0, -1))


def _register_others(gymnasium: Any, name: str) -> None:
    """Have a package register what it offers by the entry point `gymnasium.envs`: gymnasium called
    those by itself before 1.0.
    """
    space = name.partition("/")[0] + "/"
    if any(known.startswith(space) for known in gymnasium.registry):
        return
    for found in metadata.entry_points(group="gymnasium.envs"):
        if space == f"{found.name}/":
            found.load()()


def _actions_of(space: Any, name: str) -> Actions:
    """Raises UsageError for spaces that no head fits."""
    if hasattr(space, "n") and getattr(space, "start", 0) == 0 and space.shape == ():
        return Actions(count=int(space.n))
    if (
        hasattr(space, "low")
        and len(space.shape) == 1
        and np.isfinite([space.low, space.high]).all()
    ):
        return Actions(low=_floats(space.low), high=_floats(space.high))
    raise UsageError(
        f"actions of `{name}` are {space}; no head fits them",
        hint="one of several, or a row of numbers within bounds",
    )


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _title(game: str) -> str:
    return "".join(word.capitalize() for word in game.split("_"))


def _unknown(name: str, known: list[str], told: str = "") -> UsageError:
    near = difflib.get_close_matches(name, known, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "dm_control tasks: dm_control:a-b"
    return UsageError(f"no environment is called `{name}`{told and f': {told}'}", hint=hint)


def _imported(module: str, extra: str) -> Any:
    """A module of an extra. Raises UsageError where it is missing."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"{module.partition('.')[0]} is missing ({error})",
            hint=f"pip install 'qgraph[{extra}]'",
        ) from None
