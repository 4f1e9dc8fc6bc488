"""The oscillation of a converged threshold about `log2 t*`: amplitude, period and cause.

Source: TQT (Jain et al., 2019), section B.3 and appendix C.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.figures.gradients import Floats


@dataclass(frozen=True)
class Cycle:
    """A threshold at steady state.

    ratio: r_g, the magnitude of the mean gradient below `log2 t*` divided by that above. period:
    the number of steps from one entry below to the next, NaN if there are fewer than two.
    low_share: the share of steps that are below. excursion: from the lowest to the highest log2 t.
    """

    ratio: float
    period: float
    low_share: float
    excursion: float

    @property
    def steepness(self) -> float:
        """r_g, or 1 / r_g if the gradient above is larger."""
        return max(self.ratio, 1 / self.ratio)

    @property
    def low_steps(self) -> float:
        """The number of consecutive steps below; the paper's analysis assumes one."""
        return self.low_share * self.period

    def bound(self, alpha: float) -> float:
        """Bound (29) of the excursion: alpha * sqrt(r_g)."""
        return float(alpha * np.sqrt(self.steepness))


def cycle_of(log2_t: Floats, gradients: Floats, boundary: float) -> Cycle:
    """The cycle in a trajectory; `gradients[i]` is the one at `log2_t[i]`."""
    at = log2_t[: len(gradients)]
    low = at <= boundary
    entries = np.flatnonzero(low[1:] & ~low[:-1])
    period = float(np.diff(entries).mean()) if len(entries) > 1 else float("nan")
    ratio = float(-gradients[low].mean() / gradients[~low].mean())
    return Cycle(ratio, period, float(low.mean()), float(np.ptp(at)))
