"""Correctors as the sums of their papers: slow and simple, as a reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.correct.trajectories import Trajectories


def n_step(steps: Trajectories) -> Array:
    """Rewards to the end of the trajectory or the episode, and V of its last state."""
    found: Array = np.zeros_like(steps.rewards)
    for s, b in np.ndindex(found.shape):
        discount = 1.0
        for t in range(s, len(found)):
            found[s, b] += discount * steps.rewards[t, b]
            discount *= steps.discounts[t, b]
            if _ends(steps, t, b):
                found[s, b] += discount * steps.next_values[t, b]
                break
    return found


def vtrace(steps: Trajectories, rho: float = 1.0, c: float = 1.0) -> Array:
    """V(x_s) + sum_t gamma^(t-s) (c_s ... c_{t-1}) rho_t (r_t + gamma V(x_{t+1}) - V(x_t))."""
    ratios = steps.ratios(np)
    return _sums(
        steps,
        steps.values,
        weight=lambda t, b: min(rho, ratios[t, b]),
        trace=lambda s, t, b: _product(min(c, ratios[i, b]) for i in range(s, t)),
    )


def importance(steps: Trajectories, rho: float = 1.0) -> Array:
    """min(rho, pi / mu)."""
    ratios = steps.ratios(np)
    found: Array = np.zeros_like(ratios)
    for t, b in np.ndindex(found.shape):
        found[t, b] = min(rho, ratios[t, b])
    return found


def retrace(steps: Trajectories, lambda_: float = 1.0, c: float = 1.0) -> Array:
    """Q(x_s, a_s) + sum_t gamma^(t-s) (c_{s+1} ... c_t) (r_t + gamma V(x_{t+1}) - Q(x_t, a_t)).

    V(x) is the mean of Q(x, .) under pi, c_i = lambda min(c, pi / mu).
    """
    ratios = steps.ratios(np)
    return _sums(
        steps,
        steps.q,
        trace=lambda s, t, b: _product(lambda_ * min(c, ratios[i, b]) for i in range(s + 1, t + 1)),
    )


def tree_backup(steps: Trajectories, lambda_: float = 1.0) -> Array:
    """The sum of `retrace` with c_i = lambda pi(a_i | x_i)."""
    chances = np.exp(steps.log_pi)
    return _sums(
        steps,
        steps.q,
        trace=lambda s, t, b: _product(lambda_ * chances[i, b] for i in range(s + 1, t + 1)),
    )


def advantages_of_states(steps: Trajectories, targets: Array) -> Array:
    """r_t + gamma v_{t+1} - V(x_t) (equation 4 of AcceRL); V replaces v at the end of a row."""
    found = np.zeros_like(targets)
    for t, b in np.ndindex(found.shape):
        after = steps.next_values[t, b] if _ends(steps, t, b) else targets[t + 1, b]
        found[t, b] = steps.rewards[t, b] + steps.discounts[t, b] * after - steps.values[t, b]
    return found


def _sums(
    steps: Trajectories,
    base: Array,
    trace: Callable[[int, int, int], float],
    weight: Callable[[int, int], float] = lambda t, b: 1.0,
) -> Array:
    """base_s + sum_t gamma^(t-s) trace(s, t) weight_t (r_t + gamma V(x_{t+1}) - base_t).

    The sum ends with the trajectory or the episode.
    """
    found = np.array(base)
    for s, b in np.ndindex(found.shape):
        for t in range(s, len(found)):
            gammas = _product(steps.discounts[i, b] for i in range(s, t))
            after = steps.discounts[t, b] * steps.next_values[t, b]
            error = steps.rewards[t, b] + after - base[t, b]
            found[s, b] += gammas * trace(s, t, b) * weight(t, b) * error
            if _ends(steps, t, b):
                break
    return found


def _ends(steps: Trajectories, t: int, b: int) -> bool:
    return t == len(steps.rewards) - 1 or not steps.follows[t, b]


def _product(factors: Iterable[float]) -> float:
    return float(np.prod(list(factors)))
