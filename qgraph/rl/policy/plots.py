"""Figures of a study, as PNG files: returns by bits, and the distributions of actions."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np

from qgraph.distribution import install_hint
from qgraph.errors import UsageError
from qgraph.files import check_free, unwritable, write_whole
from qgraph.foreign import PlotObject
from qgraph.rl.policy.study import Study, StudyRow

COLORS = {
    "papers": "tab:orange",
    "weights": "tab:green",
    "actor": "tab:blue",
    "dynamic": "tab:blue",
    "static": "tab:red",
}
COLUMNS = 4


def plot(study: Study, folder: Path) -> list[Path]:
    """Write `returns.png`, and `actions_WAY.png` for each way. Raises UsageError, OutputError."""
    figures = {"returns": _returns(study)}
    for way in dict.fromkeys(row.way for row in study.rows):
        figures[f"actions_{way}"] = _actions(study, [row for row in study.rows if row.way == way])
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        write_figure(paths[-1], figure)
    return paths


def write_figure(path: Path, figure: PlotObject) -> None:
    """Write a figure as PNG, completely or not at all. Raises OutputError."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=100)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path.parent, error) from None
    write_whole(path, content.getvalue())


def check_figures(folder: Path) -> None:
    """Raise the errors of `plot` before the work that it shows."""
    figure_of(1, 1, 1, 1)
    drawn = [p.name for p in folder.glob("*.png")] if folder.is_dir() else []
    check_free(folder, drawn, force=True)


def figure_of(
    rows: int, columns: int, width: float, height: float
) -> tuple[PlotObject, PlotObject]:
    """A figure, and its axes [rows, columns]. Raises UsageError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            "figures need matplotlib, which is not installed",
            hint=install_hint("matplotlib", extra="figures"),
        ) from None
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for one in axes.flat:
        one.tick_params(labelsize=8)
        one.grid(True, linewidth=0.4, alpha=0.5)
    return figure, axes


def _returns(study: Study) -> PlotObject:
    figure, axes = figure_of(1, 1, 6, 3.6)
    axis, floating = axes[0, 0], study.floating
    axis.axhline(floating.mean, color="0.3", linewidth=1, label="float")
    low, high = floating.mean - floating.error, floating.mean + floating.error
    axis.axhspan(low, high, color="0.3", alpha=0.15, linewidth=0)
    bits = sorted({row.bits for row in study.rows}, reverse=True)
    ways = list(dict.fromkeys(row.way for row in study.rows))
    for shift, way in enumerate(ways):
        rows = [row for row in study.rows if row.way == way]
        axis.errorbar(
            [bits.index(row.bits) + 0.08 * (shift - (len(ways) - 1) / 2) for row in rows],
            [row.returns.mean for row in rows],
            [row.returns.error for row in rows],
            color=COLORS.get(way), marker="o", markersize=4, linewidth=1, capsize=3, label=way,
        )  # fmt: skip
    axis.set_xticks(range(len(bits)), bits)
    axis.set_xlabel("bits", fontsize=9)
    axis.set_ylabel(f"mean return of {study.episodes} episodes", fontsize=9)
    axis.set_title(study.environment, fontsize=10)
    axis.legend(fontsize=8)
    return figure


def _actions(study: Study, rows: list[StudyRow]) -> PlotObject:
    """Panels for each number of bits: one for discrete actions, or one for each action number."""
    panels = [(row, i) for row in rows for i in range(len(row.frequencies))]
    columns = len(study.frequencies) if len(study.frequencies) > 1 else min(COLUMNS, len(rows))
    columns = min(columns, COLUMNS)
    figure, axes = figure_of(math.ceil(len(panels) / columns), columns, 2.7, 2.0)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, (row, i) in zip(axes.flat, panels, strict=False):
        _panel(axis, study, row, i)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=2, loc="outside lower center")
    figure.suptitle(
        f"{study.environment}: actions in {study.steps} steps, {rows[0].way}", fontsize=10
    )
    return figure


def _panel(axis: PlotObject, study: Study, row: StudyRow, i: int) -> None:
    wanted, found, head = study.frequencies[i], row.frequencies[i], study.head
    title = f"{row.bits} bits"
    if head.integers:
        places = np.arange(len(wanted))
        axis.bar(places - 0.2, wanted, 0.4, color="0.6", label="float")
        axis.bar(places + 0.2, found, 0.4, color=COLORS.get(row.way), label="quantized")
        axis.set_xticks(places)
        title += f", choice {i}" if head.composite else ""
    else:
        edges = np.linspace(head.low[i], head.high[i], len(wanted) + 1)
        axis.stairs(wanted, edges, color="0.6", fill=True, alpha=0.5, label="float")
        axis.stairs(found, edges, color=COLORS.get(row.way), label="quantized")
        axis.set_yscale("symlog", linthresh=10)
        title += f", action {i}"
    axis.set_title(title, fontsize=8)
