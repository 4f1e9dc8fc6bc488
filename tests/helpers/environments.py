"""Environments that misbehave, or that are learned quickly:
`tests.helpers.environments:Point-v0`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class NotFinite(gymnasium.Env):  # type: ignore[misc]
    """Ten steps per episode. In every 20th, the last number of `bad` (observation or reward) is
    NaN.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, bad: str = "observation") -> None:
        self.bad, self.episodes, self.steps = bad, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episodes, self.steps = self.episodes + 1, 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        over = self.steps == 10
        seen, reward = np.full(3, 0.1 * self.steps, np.float32), 1.0
        if over and self.episodes % 20 == 0:
            seen[1] = np.nan if self.bad == "observation" else seen[1]
            reward = np.nan if self.bad == "reward" else reward
        return seen, reward, over, False, {}


class Reuses(NotFinite):
    """Counts its steps in one array, which it returns each time."""

    observation_space = gymnasium.spaces.Box(0, 10, (1,), np.float32)

    def __init__(self) -> None:
        super().__init__()
        self.seen = np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seen[:], self.steps = 0, 0
        return self.seen, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.seen += 1
        return self.seen, 1.0, self.steps == 10, False, {}


class Unbounded(NotFinite):
    """An environment whose actions have no lower limit."""

    action_space = gymnasium.spaces.Box(-np.inf, 1, (1,), np.float32)


class Images(NotFinite):
    """An environment with images, of which only the properties are used."""

    observation_space = gymnasium.spaces.Box(0, 255, (16, 16, 3), np.uint8)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)


class Point(gymnasium.Env):  # type: ignore[misc]
    """A point on [-1, 1] that actions move by up to 0.4; the cost is its distance from 0.3.

    Episodes have eight steps. The best policy has a mean return of -0.29, a policy that does not
    move -4.4.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-0.4, 0.4, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1, 1), 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.place = float(np.clip(self.place + action[0], -1, 1))
        return self._seen(), -abs(self.place - 0.3), False, self.steps == 8, {}

    def _seen(self) -> Any:
        return np.array([self.place], np.float32)


gymnasium.register("NotFinite-v0", NotFinite, disable_env_checker=True)
gymnasium.register(
    "NotFiniteReward-v0", NotFinite, disable_env_checker=True, kwargs={"bad": "reward"}
)
gymnasium.register("Reuses-v0", Reuses, disable_env_checker=True)
gymnasium.register("Unbounded-v0", Unbounded, disable_env_checker=True)
gymnasium.register("Images-v0", Images, disable_env_checker=True)
gymnasium.register("Point-v0", Point, disable_env_checker=True)
