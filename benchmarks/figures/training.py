"""Figure 8: raw, log and normed log thresholds in training."""

from __future__ import annotations

from matplotlib.figure import Figure

from benchmarks.figures.gradients import critical
from benchmarks.figures.style import RULE_COLORS, grid_of, legend_below, power
from benchmarks.figures.toy import ALPHA, BITS, RULES, SIGMAS, STEPS, train


def figure8() -> Figure:
    """A row for each bit width, a column for each sigma; `log2 t*` is between the shaded bins."""
    figure, axes = grid_of(len(BITS), len(SIGMAS), 2.7, 2.5, sharex=True)
    for row, bits in zip(axes, BITS, strict=True):
        runs = {name: train(rule(), bits) for name, rule in RULES.items()}
        for column, (axis, sigma) in enumerate(zip(row, SIGMAS, strict=True)):
            boundary, ratio = critical(sigma, bits)
            axis.axhspan(boundary - 1, boundary + 1, color="0.9")
            for name, run in runs.items():
                width = 0.4 if name == "raw, SGD" else 1.1
                line = run.log2_t[:, column]
                axis.plot(line, color=RULE_COLORS[name], linewidth=width, label=name)
            axis.set_ylim(min(boundary, 0) - 3, max(boundary, 0) + 5)
            axis.set_title(f"b = {bits}, sigma = {power(sigma)}, $r_g$ = {ratio:.4g}", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("step", fontsize=9)
    for axis in axes[:, 0]:
        axis.set_ylabel("log2 t", fontsize=9)
    legend_below(figure, axes[0, 0])
    figure.suptitle(f"{STEPS} steps on the L2 loss, alpha = {ALPHA}", fontsize=11)
    return figure
