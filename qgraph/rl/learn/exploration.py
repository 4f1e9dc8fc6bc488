"""Exploration of actors. Ladders space its amount over the actors."""

from __future__ import annotations

import math
from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Protocol

import numpy as np

from qgraph.errors import RunError
from qgraph.ir.types import Array
from qgraph.rl.environments.environment import Action
from qgraph.rl.head import Head

LOG_ROOT = math.log(2 * math.pi) / 2  # of the density of a normal distribution
LOG_STD = (-5.0, 2.0)  # log deviations of a drawn policy are clipped to this


class ChosenAction(NamedTuple):
    """An action as it is stored, as it is sent to the environment, and its log probability.

    The log probability is NaN if the action was not drawn from the policy's distribution.
    """

    action: Action
    sent: Action
    log_probability: float = float("nan")


class Exploration(Protocol):
    """Chooses an action from outputs [m] at a step of an actor."""

    def choose(self, outputs: Array, step: int, rng: np.random.Generator) -> ChosenAction: ...


@dataclass
class Epsilon:
    """Random actions in a share of steps that falls from 1 to `last` over `steps` steps.

    A random action is repeated for `hold` steps on average (geometric), since single random steps
    do not build up momentum (Dabney et al., 2021).
    """

    last: float
    steps: int
    hold: int = 1
    held: int = 0  # the random action
    left: int = 0  # for how many more steps it is repeated

    def choose(self, outputs: Array, step: int, rng: np.random.Generator) -> ChosenAction:
        share = max(self.last, 1 - (1 - self.last) * step / max(self.steps, 1))
        if self.left == 0 and rng.random() < share / (share + self.hold * (1 - share)):
            self.held = int(rng.integers(len(outputs)))
            self.left = int(rng.geometric(1 / self.hold))
        if self.left == 0:
            action = int(_finite(outputs).argmax())
        else:
            action, self.left = self.held, self.left - 1
        return ChosenAction(action, action)


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on actions in -1..1; the head scales them for the environment."""

    sigma: float
    head: Head

    def choose(self, outputs: Array, step: int, rng: np.random.Generator) -> ChosenAction:
        noisy = _finite(outputs) + self.sigma * rng.standard_normal(outputs.shape, np.float32)
        action = np.clip(noisy, -1, 1).astype(np.float32)
        return ChosenAction(action, self.head.actions(action[None])[0])


class Categorical:
    """Draws from the policy's distribution over actions; the outputs are its logits.

    Raises RunError for logits that are not finite.
    """

    def choose(self, outputs: Array, step: int, rng: np.random.Generator) -> ChosenAction:
        # For a few numbers this is faster than numpy.
        logits: list[float] = outputs.tolist()
        top = max(logits)
        sums = list(accumulate(math.exp(logit - top) for logit in logits))
        if not sums[-1] >= 1:
            raise _not_finite(outputs)
        action = bisect(sums, rng.random() * sums[-1])
        return ChosenAction(action, action, logits[action] - top - math.log(sums[-1]))


@dataclass(frozen=True)
class Gaussian:
    """Draws from a normal distribution; the outputs are its means and log deviations.

    The environment gets the action clipped to the head's bounds; the action that is stored, and its
    log-density, are those before the clip.
    """

    head: Head

    def choose(self, outputs: Array, step: int, rng: np.random.Generator) -> ChosenAction:
        mean, log_std = np.split(_finite(outputs), 2)
        noise = rng.standard_normal(mean.shape, np.float32)
        action = mean + np.exp(log_std) * noise
        density = -np.sum(noise * noise / 2 + log_std + LOG_ROOT, dtype=np.float64)
        sent = np.clip(action, self.head.low, self.head.high).astype(np.float32)
        return ChosenAction(action, sent, float(density))


@dataclass(frozen=True)
class SquashedGaussian:
    """Draws from the policy's distribution, squashed to -1..1; the head scales that."""

    head: Head
    log_std: tuple[float, float] = LOG_STD

    def choose(self, outputs: Array, step: int, rng: np.random.Generator) -> ChosenAction:
        mean, log_std = np.split(_finite(outputs), 2)
        noise = rng.standard_normal(mean.shape, np.float32)
        action = np.tanh(mean + np.exp(np.clip(log_std, *self.log_std)) * noise)
        return ChosenAction(action, self.head.actions(action[None])[0])


def _finite(outputs: Array) -> Array:
    """The same outputs. Raises RunError if they are not finite."""
    if not np.isfinite(outputs).all():
        raise _not_finite(outputs)
    return outputs


def _not_finite(outputs: Array) -> RunError:
    return RunError(f"the policy has outputs that are not finite: {outputs.tolist()}")


def epsilon_ladder(actor: int, actors: int, base: float) -> float:
    """base ** (1 + 7 i / (N - 1)), as in Ape-X; `base` for a single actor."""
    return base if actors == 1 else float(base ** (1 + 7 * actor / (actors - 1)))


def sigma_ladder(actor: int, actors: int, most: float) -> float:
    """Even steps up to `most`, without 0; `most` for a single actor."""
    return most * (actor + 1) / actors
