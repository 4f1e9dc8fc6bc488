"""Figure 2: range against precision. Inputs that fit pull a threshold in, the others push it
out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.figures.curves import BITS, LOG2_T, qgraph_quantizer
from benchmarks.figures.gradients import Floats, mean_gradients
from benchmarks.figures.style import BACKWARD, FORWARD, grid_of
from qgraph.foreign import PlotObject

NARROW, WIDE = 0.25, 0.8


def balanced() -> float:
    """The sigma at which the gradients cancel."""
    sigmas = np.linspace(NARROW, WIDE, 56)
    return float(np.interp(0.0, -pull(sigmas), sigmas))


def pull(sigmas: Any) -> Floats:
    """Mean gradients by log2 t: positive ones move the threshold in, negative ones out."""
    return mean_gradients(sigmas, BITS, LOG2_T, 5001)


def figure2() -> Figure:
    """The figure: three Gaussians with the same threshold."""
    figure, axes = grid_of(1, 3, 3.4, 2.8, sharey=True)
    x = np.linspace(-2, 2, 2001)
    titles = ("moves in: more precision", "moves out: more range", "converged")
    sigmas = (NARROW, WIDE, balanced())
    for axis, sigma, title, mean in zip(axes[0], sigmas, titles, pull(sigmas), strict=True):
        _panel(axis, x, sigma)
        axis.set_title(f"{title}\nsigma = {sigma:.2f}, mean gradient {mean:+.4f}", fontsize=9)
    axes[0, 0].legend(fontsize=7, loc="lower left")
    figure.suptitle(f"dL / d log2 t, b = {BITS}, t = {2**LOG2_T:g}", fontsize=11)
    return figure


def _panel(axis: PlotObject, x: Floats, sigma: float) -> None:
    slope = qgraph_quantizer(x).of_loss().by_limits["log2 t"]
    density = np.exp(-np.square(x / sigma) / 2) / sigma
    density /= density.max()
    weighted = density * slope
    axis.fill_between(x, 0.1 * density, color="0.85", label="inputs (scaled)")
    axis.plot(x, slope, color=BACKWARD, linewidth=1.2, label="gradient of an input")
    axis.fill_between(x, 3 * weighted, color=FORWARD, alpha=0.6, label="times inputs (scaled)")
    axis.set_ylim(-0.2, 0.12)
    axis.set_xlabel("x", fontsize=9)
