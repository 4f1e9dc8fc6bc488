"""How good a policy is: returns of whole episodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.environments import Environment

Act = Callable[[Array], Any]  # an observation to an action
LONGEST = 100_000  # steps of an episode, where the environment sets no end


@dataclass(frozen=True)
class Returns:
    """Undiscounted returns, one for each episode, and how many steps they took."""

    each: tuple[float, ...]
    steps: tuple[int, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.each))

    @property
    def error(self) -> float:
        """Standard error of the mean; 0 for a single episode."""
        count = len(self.each)
        return float(np.std(self.each, ddof=1) / math.sqrt(count)) if count > 1 else 0.0


def evaluate(act: Act, environment: Environment, episodes: int, seed: int = 0) -> Returns:
    """Episode i begins from `seed + i`: two policies see the same ones."""
    found = [_episode(act, environment, seed + i) for i in range(episodes)]
    return Returns(tuple(total for total, _ in found), tuple(steps for _, steps in found))


def _episode(act: Act, environment: Environment, seed: int) -> tuple[float, int]:
    observation, total, steps = environment.reset(seed), 0.0, 0
    for _ in range(LONGEST):
        outcome = environment.step(act(observation))
        total += outcome.reward
        steps += 1
        if outcome.over:
            break
        observation = outcome.observation
    return total, steps
