"""Figure 9: the oscillation of a converged threshold with Adam."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from benchmarks.figures.cycle import cycle_of
from benchmarks.figures.gradients import critical
from benchmarks.figures.style import BACKWARD, FORWARD, grid_of, power
from benchmarks.figures.toy import ALPHA, adam, train

BITS = 8
WINDOWS = {1e-2: 150, 1e-1: 500, 1e0: 2500}  # steps to show
STEPS, SETTLED = 8000, 4000


def figure9() -> Figure:
    """Close-ups for 8 bits, measured over the last `SETTLED` steps."""
    boundaries = [critical(sigma, BITS)[0] for sigma in WINDOWS]
    start = np.array(boundaries) + 0.5
    run = train(adam(), BITS, list(WINDOWS), STEPS, start).tail(SETTLED)
    figure, axes = grid_of(2, len(WINDOWS), 3.6, 2.2, sharex="col")
    for column, (sigma, window) in enumerate(WINDOWS.items()):
        log2_t, gradients = run.log2_t[:-1, column], run.gradients[:, column]
        cycle = cycle_of(log2_t, gradients, boundaries[column])
        top, bottom = axes[:, column]
        top.axhline(boundaries[column], color="0.5", linewidth=0.8)
        top.plot(log2_t[:window], color=FORWARD, linewidth=1)
        bottom.plot(gradients[:window] / np.abs(gradients).max(), color=BACKWARD, linewidth=0.8)
        top.set_title(
            f"sigma = {power(sigma)}: $r_g$ = {cycle.ratio:.4g}, T = {cycle.period:.4g}\n"
            f"excursion {cycle.excursion:.2f}, "
            rf"$\alpha\sqrt{{r_g}}$ = {cycle.bound(ALPHA):.2f}",
            fontsize=9,
        )
        bottom.set_xlabel("step", fontsize=9)
    axes[0, 0].set_ylabel("log2 t", fontsize=9)
    axes[1, 0].set_ylabel("gradient / greatest", fontsize=9)
    figure.suptitle(f"Adam at steady state, b = {BITS}, alpha = {ALPHA}", fontsize=11)
    return figure
