"""The toy problem: one quantizer learns its threshold for Gaussian inputs and an L2 loss.

Source: TQT (Jain et al., 2019), sections 3.4 and B. A step draws `SAMPLES` new numbers for each
sigma; the loss is the sum of `(q(x) - x)^2 / 2`. The paper specifies neither the number nor whether
the loss is a sum or a mean. Adam and normed gradients do not depend on this; with a sum, plain
gradient descent behaves as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.figures.gradients import Floats, l2_gradient

Rule = Callable[[Floats, Floats], Floats]

SIGMAS = (1e-2, 1e-1, 1e0, 1e1, 1e2)
BITS = (4, 8)
ALPHA = 0.1
STEPS = 2000
SAMPLES = 1000
MAX_LOG2_T = 100.0  # beyond it, 2^|log2 t| exceeds the range of the quantizer


# -- one step of training: from log2_t and its gradient to the next log2_t -----------------------


def raw(alpha: float = ALPHA) -> Rule:
    """Gradient descent on t itself. A threshold of 0 or less has no logarithm and becomes NaN."""

    def step(log2_t: Floats, gradient: Floats) -> Floats:
        t = np.exp2(log2_t)
        t = t - alpha * gradient / (t * np.log(2.0))
        return np.log2(np.where(t > 0, t, np.nan))

    return step


def log(alpha: float = ALPHA) -> Rule:
    """Gradient descent on log2 t."""
    return lambda log2_t, gradient: log2_t - alpha * gradient


def normed_log(alpha: float = ALPHA, beta: float = 0.999, epsilon: float = 1e-12) -> Rule:
    """Gradient descent on log2 t with normed gradients (17, 18)."""
    average = Average(beta)

    def step(log2_t: Floats, gradient: Floats) -> Floats:
        size = np.sqrt(average(np.square(gradient))) + epsilon
        return log2_t - alpha * np.tanh(gradient / size)

    return step


def adam(
    alpha: float = ALPHA, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-12
) -> Rule:
    """Adam on log2 t."""
    mean, square = Average(beta1), Average(beta2)

    def step(log2_t: Floats, gradient: Floats) -> Floats:
        return log2_t - alpha * mean(gradient) / (np.sqrt(square(gradient**2)) + epsilon)

    return step


@dataclass
class Average:
    """A moving average with a correction for its start at 0."""

    beta: float
    value: Floats | float = 0.0
    steps: int = 0

    def __call__(self, new: Floats) -> Floats:
        self.steps += 1
        self.value = self.beta * self.value + (1 - self.beta) * new
        return np.asarray(self.value / (1 - self.beta**self.steps))


RULES: dict[str, Callable[[], Rule]] = {
    "raw, SGD": raw,
    "log, SGD": log,
    "normed log, SGD": normed_log,
    "log, Adam": adam,
}


# -- training --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """`log2_t[steps + 1, columns]` from the start on, and `gradients[steps, columns]`.

    Values are NaN after a threshold has left the positive numbers or the range of the quantizer.
    """

    log2_t: Floats
    gradients: Floats

    def tail(self, steps: int) -> Run:
        return Run(self.log2_t[-steps - 1 :], self.gradients[-steps:])


def train(
    rule: Rule,
    bits: int,
    sigmas: Sequence[float] = SIGMAS,
    steps: int = STEPS,
    start: float | Sequence[float] | Floats = 0.0,
    seed: int = 0,
    fresh: bool = True,
) -> Run:
    """Train a threshold for each sigma. All sigmas use the same random numbers, times sigma.

    fresh: draw new numbers for each step; otherwise the first ones are used in all steps, which
    gives gradients without noise.
    """
    gradient = l2_gradient(bits, compiled=True)
    draw, scale = np.random.default_rng(seed), np.asarray(sigmas, np.float32)
    x = draw.standard_normal((SAMPLES, 1), np.float32) * scale
    now = np.broadcast_to(np.asarray(start, np.float64), scale.shape)
    history, gradients = [now], []
    of_bins: dict[bytes, Floats] = {}
    for _ in range(steps):
        bins = np.ceil(np.nan_to_num(now))  # gradients depend on nothing else, except x
        if bins.tobytes() not in of_bins:
            of_bins[bins.tobytes()] = gradient(x, bins)
        found = np.where(np.isfinite(now), of_bins[bins.tobytes()], np.nan)
        now = rule(now, found)
        now = np.where(np.abs(now) < MAX_LOG2_T, now, np.nan)
        gradients.append(found)
        history.append(now)
        if fresh:
            x = draw.standard_normal((SAMPLES, 1), np.float32) * scale
            of_bins.clear()
    return Run(np.array(history), np.array(gradients))
