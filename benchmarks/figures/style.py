"""The style that all figures share."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from qgraph.foreign import PlotObject

FORWARD, BACKWARD, OTHER = "tab:blue", "tab:red", "tab:orange"
RULE_COLORS = {
    "raw, SGD": "0.5",
    "log, SGD": "tab:orange",
    "normed log, SGD": "tab:green",
    "log, Adam": "tab:blue",
}


def grid_of(rows: int, columns: int, width: float, height: float, **how: Any) -> tuple[Figure, Any]:
    """A figure and its axes `[rows, columns]`; the size is that of one axis, in inches."""
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **how)
    for one in axes.flat:
        one.tick_params(labelsize=8)
        one.grid(True, linewidth=0.4, alpha=0.5)
    return figure, axes


def legend_below(figure: Figure, axis: PlotObject) -> None:
    """Add one legend for all axes, from the lines of one axis."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=len(labels), loc="outside lower center")


def power(sigma: float) -> str:
    """Sigma as a power of ten, for a title."""
    return f"$10^{{{round(math.log10(sigma))}}}$"


def save(figure: Figure, path: Path) -> None:
    """Save the figure as a small PNG file with few colors."""
    whole = io.BytesIO()
    figure.savefig(whole, dpi=85)
    Image.open(whole).convert("RGB").quantize(64).save(path, optimize=True)
