"""Figures 5 and 10: the values that moved thresholds clip, before and after training."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from benchmarks.figures.run import Run, Scale
from benchmarks.figures.style import grid_of
from qgraph.foreign import PlotObject
from qgraph.ir.types import Array

COLUMNS, SELECTED = 4, 8
BEFORE, AFTER = "black", "tab:red"
INITIAL, TRAINED = "tab:cyan", "tab:blue"


def figure5(run: Run) -> Figure:
    """The thresholds that moved the most, some inwards, some outwards."""
    return _figure(run, _selected(run.scales()))


def figure10(run: Run) -> Figure:
    """All weights and activations whose threshold moved by a power of two or more."""
    return _figure(run, _moved(run.scales()))


def _moved(scales: list[Scale]) -> list[Scale]:
    return [s for s in scales if s.deviation and s.spec.role != "internal"]


def _selected(scales: list[Scale]) -> list[Scale]:
    """Half of the thresholds from each end, in the order of the network."""
    moved = _moved(scales)
    by_deviation = sorted(moved, key=lambda s: s.deviation)
    ends = by_deviation[: SELECTED // 2] + by_deviation[-SELECTED // 2 :]
    return [s for s in moved if s in ends]


def _figure(run: Run, scales: list[Scale]) -> Figure:
    columns = max(min(COLUMNS, len(scales)), 1)
    rows = max(math.ceil(len(scales) / columns), 1)
    figure, axes = grid_of(rows, columns, 2.9, 2.0)
    for axis in axes.flat[len(scales) :]:
        axis.set_axis_off()
    for axis, (scale, before, after) in zip(axes.flat, run.inputs_of(scales), strict=False):
        _panel(axis, scale, before, after)
    figure.suptitle(f"{run.name}: thresholds that moved", fontsize=11)
    if scales:
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, ncols=4, loc="outside lower center")
    return figure


def _panel(axis: PlotObject, scale: Scale, before: Array, after: Array) -> None:
    limits = _limits(scale, before)
    for values, color, label in ((before, BEFORE, "before"), (after, AFTER, "after")):
        counts, edges = np.histogram(np.clip(values, *limits), bins=60, range=limits)
        axis.stairs(counts, edges, color=color, label=label, linewidth=1)
    lines = ((scale.before, INITIAL, "initial threshold"), (scale.after, TRAINED, "trained"))
    for log2_t, color, label in lines:
        axis.axvline(2**log2_t, color=color, linewidth=1.2, label=label)
        if scale.spec.signed:
            axis.axvline(-(2**log2_t), color=color, linewidth=1.2)
    axis.set_yscale("symlog", linthresh=1)
    axis.set_title(f"{_short(scale)}\nb = {scale.spec.bits}, d = {scale.deviation:+d}", fontsize=7)


def _limits(scale: Scale, values: Array) -> tuple[float, float]:
    """The limits of the histogram. Values beyond them are counted in the last bins."""
    farthest = 1.3 * 2 ** max(scale.before, scale.after)
    most = min(max(float(np.abs(values).max()), farthest), 2 * farthest)
    return (-most if scale.spec.signed else 0.0), most


def _short(scale: Scale) -> str:
    """The name of the layer without that of the network, and what is quantized."""
    parts = scale.node.name.split("/")[:-1]
    return "/".join(parts[1:] if len(parts) > 2 else parts)[-38:]
