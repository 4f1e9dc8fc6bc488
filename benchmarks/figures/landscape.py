"""Figure 7: gradients by raw and by log thresholds differ in size, normed ones do not."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from benchmarks.figures.gradients import Floats, critical, mean_gradients, raw_gradients
from benchmarks.figures.style import grid_of, legend_below
from benchmarks.figures.toy import BITS, SIGMAS

LOG2_T = np.arange(-10, 11, 0.25)
DECADES = (1e-6, 1e-3, 1e0, 1e3)


def desired(sigma: float, bits: int, log2_t: Floats) -> Floats:
    """The desired gradient of section B.2: constant on both sides of the jump, with the same
    ratio.
    """
    boundary, ratio = critical(sigma, bits)
    return np.where(log2_t <= boundary, -ratio, 1.0) / max(ratio, 1.0)


def figure7() -> Figure:
    """The figure, with a row for each bit width."""
    columns = ("by raw t", "by log2 t", "by log2 t, normed (desired)")
    figure, axes = grid_of(len(BITS), 3, 3.6, 2.7, sharex=True)
    for row, bits in zip(axes, BITS, strict=True):
        for sigma in SIGMAS:
            by_log = mean_gradients(sigma, bits, LOG2_T)
            lines = (raw_gradients(LOG2_T, by_log), by_log, desired(sigma, bits, LOG2_T))
            for axis, line in zip(row, lines, strict=True):
                axis.step(LOG2_T, line, where="pre", linewidth=1.1, label=f"sigma = {sigma:g}")
        for axis, title in zip(row, columns, strict=True):
            axis.set_title(f"{title}, b = {bits}", fontsize=9)
            decades = DECADES if axis is not row[2] else DECADES[1:]
            axis.set_yscale("symlog", linthresh=decades[0])
            axis.set_yticks([sign * size for size in decades for sign in (-1, 1)] + [0])
    for axis in axes[-1]:
        axis.set_xlabel("log2 t", fontsize=9)
    legend_below(figure, axes[0, 0])
    figure.suptitle("Mean gradient of the L2 loss of Gaussian(sigma) inputs", fontsize=11)
    return figure
