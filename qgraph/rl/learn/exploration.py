"""How actors try what they would not do: ladders, so that each does it to another degree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.head import Head


class Exploration(Protocol):
    """Chooses by outputs [m] at an actor's step: what is stored, and what the environment gets."""

    def choose(self, outputs: Array, step: int, rng: np.random.Generator) -> tuple[Any, Any]: ...


@dataclass(frozen=True)
class Epsilon:
    """Any action with a probability that falls from 1 to `last` over so many steps."""

    last: float
    steps: int

    def choose(self, outputs: Array, step: int, rng: np.random.Generator) -> tuple[Any, Any]:
        epsilon = max(self.last, 1 - (1 - self.last) * step / max(self.steps, 1))
        if rng.random() < epsilon:
            action = int(rng.integers(len(outputs)))
        else:
            action = int(outputs.argmax())
        return action, action


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on actions in -1..1; the head stretches them for the environment."""

    sigma: float
    head: Head

    def choose(self, outputs: Array, step: int, rng: np.random.Generator) -> tuple[Any, Any]:
        noisy = outputs + self.sigma * rng.standard_normal(outputs.shape, np.float32)
        action = np.clip(noisy, -1, 1).astype(np.float32)
        return action, self.head.actions(action[None])[0]


def epsilon_ladder(actor: int, actors: int, base: float) -> float:
    """base ** (1 + 7 i / (N - 1)), as Ape-X has it; `base` alone for one actor."""
    return base if actors == 1 else float(base ** (1 + 7 * actor / (actors - 1)))


def sigma_ladder(actor: int, actors: int, most: float) -> float:
    """Even steps up to `most`, none of them 0: one actor alone has `most`."""
    return most * (actor + 1) / actors
