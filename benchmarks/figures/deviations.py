"""Figure 6: the changes of thresholds by training, by bits and kind, and their first steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from benchmarks.figures.run import Run
from benchmarks.figures.style import grid_of
from qgraph.foreign import PlotObject
from qgraph.train.data import Source

STEPS = 100
KINDS = {"weight": "tab:blue", "activation": "tab:orange", "internal": "0.6"}


def figure6(runs: Sequence[Run], data: Source | None = None) -> Figure:
    """A histogram for each run; with the training data, also its first steps."""
    columns = 2 if data is not None else min(len(runs), 4)
    rows = len(runs) if data is not None else -(-len(runs) // columns)
    figure, axes = grid_of(rows, columns, 3.4, 2.2)
    panels = axes[:, -1] if data is not None else axes.flat
    for axis, run in zip(panels, runs, strict=False):
        _histogram(axis, run)
    for axis in list(axes.flat)[len(runs) * (2 if data is not None else 1) :]:
        axis.set_axis_off()
    if data is not None:
        for axis, run in zip(axes[:, 0], runs, strict=True):
            axis.plot(run.first_steps(data, STEPS), linewidth=0.7)
            axis.set_title(f"{run.name}: log2 t of the first steps", fontsize=9)
    handles, labels = axes.flat[columns - 1].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=len(labels), loc="outside lower center")
    return figure


def counts_of(run: Run) -> dict[str, Counter[int]]:
    """The number of thresholds of each kind with each change."""
    found: dict[str, Counter[int]] = {kind: Counter() for kind in KINDS}
    for scale in run.scales():
        kind = scale.spec.role if scale.spec.role in KINDS else "activation"
        found[kind][scale.deviation] += 1
    return found


def _histogram(axis: PlotObject, run: Run) -> None:
    found = counts_of(run)
    most = max(3, *(abs(d) for counter in found.values() for d in counter))
    deviations = np.arange(-most, most + 1)
    below = np.zeros(len(deviations))
    for kind, counter in found.items():
        counts = np.array([counter[int(d)] for d in deviations], np.float64)
        axis.bar(deviations, counts, bottom=below, color=KINDS[kind], label=kind)
        below += counts
    axis.set_title(f"{run.name}: thresholds by d", fontsize=9)
