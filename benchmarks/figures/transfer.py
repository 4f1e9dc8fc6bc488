"""Figures 1 and 3: transfer curves of qgraph's quantizer and of TensorFlow's FakeQuant."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from benchmarks.figures.curves import BITS, LIMITS, LOG2_T, Curves, fake_quant, qgraph_quantizer
from benchmarks.figures.gradients import Floats
from benchmarks.figures.style import BACKWARD, FORWARD, OTHER, grid_of
from qgraph.foreign import PlotObject


def figure1() -> Figure:
    """The curves of qgraph's quantizer, signed and unsigned."""
    x = np.linspace(-1.6, 1.6, 1601)
    figure, axes = grid_of(4, 3, 3.2, 1.9, sharex=True)
    for rows, signed in ((axes[:2], True), (axes[2:], False)):
        _two_rows(rows, qgraph_quantizer(x, signed=signed), "signed" if signed else "unsigned")
    figure.suptitle(f"Trained quantizer, b = {BITS}, t = {2**LOG2_T:g}", fontsize=11)
    return figure


def figure3() -> Figure:
    """The curves of TensorFlow's FakeQuant."""
    figure, axes = grid_of(2, 3, 3.2, 1.9, sharex=True)
    _two_rows(axes, fake_quant(np.linspace(-1.6, 1.6, 1601)), "signed")
    low, high = LIMITS
    figure.suptitle(f"FakeQuant, b = {BITS}, min = {low}, max = {high}", fontsize=11)
    return figure


def _two_rows(axes: PlotObject, local: Curves, kind: str) -> None:
    for row, curves, y in ((axes[0], local, "q"), (axes[1], local.of_loss(), "L")):
        _draw(row[0], curves.x, {f"{y}(x), {kind}": curves.value}, (FORWARD,))
        _draw(row[1], curves.x, {f"d{y} / dx": curves.by_x}, (BACKWARD,))
        slopes = {f"d{y} / d {name}": slope for name, slope in curves.by_limits.items()}
        _draw(row[2], curves.x, slopes, (BACKWARD, OTHER))


def _draw(axis: PlotObject, x: Floats, lines: dict[str, Floats], colors: tuple[str, ...]) -> None:
    for (label, y), color in zip(lines.items(), colors, strict=False):
        axis.plot(x, y, color=color, linewidth=1.2, label=label)
    axis.set_title(" and ".join(lines), fontsize=9)
    if len(lines) > 1:
        axis.legend(fontsize=7)
