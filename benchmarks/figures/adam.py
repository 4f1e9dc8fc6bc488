"""Adam on a threshold at steady state: the formulas of appendix C, and the settings of table 4.

One step has the gradient g_l, then T steps have g_h = -g_l / r. Means `m` are in units of g_l.
Source: TQT (Jain et al., 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def lowest_mean(beta1: float, r: float, period: float) -> float:
    """m_0 / g_l of (19), before the step that has g_l."""
    decay = beta1**period
    return float((decay * (1 - beta1) - (1 - decay) / r) / (1 - decay * beta1))


def mean(i: int, beta1: float, r: float, period: float) -> float:
    """m_i / g_l of (20); 0 is the step that has g_l."""
    start = beta1 * lowest_mean(beta1, r, period) + 1 - beta1 + 1 / r
    return float(beta1**i * start - 1 / r)


def moved(t: int, beta1: float, r: float, period: float) -> float:
    """Equation (21): the change of log2 t after steps 0 to t, in units of alpha."""
    start = beta1 * lowest_mean(beta1, r, period) + 1 - beta1 + 1 / r
    total = (1 - beta1 ** (t + 1)) / (1 - beta1) * start - (t + 1) / r
    return float(total / np.sqrt(1 / r**2 + 1 / period))


def farthest_step(beta1: float, r: float) -> float:
    """t_max of (26), the step at which `moved` is largest."""
    sought = (1 - beta1 ** (r + 1)) / (1 + r) / np.log(1 / beta1)
    return float(np.log(sought) / np.log(beta1) - 1)


def farthest(beta1: float, r: float) -> float:
    """Equation (28): the maximum of `moved`, for r much above 1."""
    return float(np.sqrt(r) * (1 + (1 + np.log(r * np.log(1 / beta1))) / (r * np.log(beta1))))


@dataclass(frozen=True)
class Guideline:
    """Settings for the thresholds of signed tensors with this number of bits."""

    alpha: float
    beta2: float
    steps: float


def guideline(bits: int) -> Guideline:
    """Table 4 by its formulas: the limits of alpha and beta2, and the number of steps that they
    need.
    """
    p = 2 ** (bits - 1) - 1
    alpha, beta2 = 0.1 / np.sqrt(p), 1 - 0.1 / p
    return Guideline(alpha, beta2, 1 / alpha + 1 / (1 - beta2))
