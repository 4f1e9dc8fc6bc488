"""Indicators and decisions of a run as a PNG file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qgraph.foreign import PlotObject
from qgraph.rl.monitor.log import LINES, DecisionRow, changes, read_log
from qgraph.rl.policy.plots import figure_of, write_figure

FIGURE = "monitor.png"
LEVELS = 4
PANELS = (
    ("KL of actions", ("kl_mean", "kl_max")),
    ("return", ("returned", "reward_gap")),
    ("entropy", ("entropy",)),
    ("learner steps behind", ("staleness",)),
)


def plot(folder: Path) -> Path:
    """Write `monitor.png` from the log in `folder`; lines mark changes of the chain.

    Raises LoadError without a log, UsageError without matplotlib, OutputError.
    """
    rows = read_log(folder / LINES)
    figure, axes = figure_of(len(PANELS) + 1, 1, 7, 1.8)
    steps = [row.indicators.version for row in rows]
    for axis, (title, names) in zip(axes.flat, PANELS, strict=False):
        for name in names:
            axis.plot(
                steps, [getattr(row.indicators, name) for row in rows], label=name, marker="."
            )
        axis.set_ylabel(title, fontsize=8)
        axis.legend(fontsize=7)
    share = axes.flat[-1]
    share.step(steps, [row.decision.share for row in rows], where="post", color="0.3")
    share.set_ylabel("share compressed", fontsize=8)
    share.set_ylim(-0.05, 1.05)
    share.set_xlabel("learner steps", fontsize=9)
    _mark(list(axes.flat), changes(rows))
    path = folder / FIGURE
    write_figure(path, figure)
    return path


def _mark(axes: Sequence[PlotObject], made: Sequence[DecisionRow]) -> None:
    """A line for each chain with its text above, at LEVELS in turn, since changes can be close."""
    first = axes[0]
    for i, row in enumerate(made):
        for axis in axes:
            axis.axvline(row.indicators.version, color="tab:red", linewidth=0.8)
        first.text(
            row.indicators.version,
            1.03 + 0.12 * (i % LEVELS),
            str(row.decision.compressor),
            fontsize=6,
            transform=first.get_xaxis_transform(),
        )
