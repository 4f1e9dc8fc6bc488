"""Draw figures from tables. The first column has names, the others have numbers."""

from __future__ import annotations

import hashlib
import io
import json
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from benchmarks.tables import Table
from qgraph.foreign import PlotObject

WIDTH = 7.0
LINE = 34  # characters in a line beside an axis of y
FEW = 6  # numbers on an axis of x that all get a mark
STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "qgraph",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class Kind(Protocol):
    """A way to draw a table."""

    def draw(self, table: Table, axis: PlotObject) -> None: ...

    def height(self, table: Table) -> float: ...


@dataclass(frozen=True)
class Bars:
    """Horizontal bars: a group for each row, a bar for each column except the first.

    stacked: the bars of a row are drawn end to end. line: the position of a vertical line. percent:
    values are shares.
    """

    xlabel: str
    log: bool = False
    stacked: bool = False
    percent: bool = False
    line: float | None = None

    def height(self, table: Table) -> float:
        bars = 1 if self.stacked else len(table.columns) - 1
        return 1.3 + len(table.rows) * (0.16 + 0.13 * bars)

    def draw(self, table: Table, axis: PlotObject) -> None:
        first, *series = table.columns
        labels = [str(row[first]) for row in table.rows]
        thick = 0.8 if self.stacked else 0.8 / len(series)
        left = [0.0] * len(labels)
        for i, name in enumerate(series):
            means, errors = zip(*(_mean(row[name]) for row in table.rows), strict=True)
            shift = 0.0 if self.stacked else (i - (len(series) - 1) / 2) * thick
            places = [n + shift for n in range(len(labels))]
            error = None if self.stacked or not any(errors) else errors
            axis.barh(places, means, thick, left if self.stacked else None, label=name, xerr=error)
            left = [a + b for a, b in zip(left, means, strict=True)]
        axis.set_yticks(range(len(labels)), labels)
        axis.invert_yaxis()
        axis.set_xlabel(self.xlabel)
        if self.log:
            _logarithmic(axis)
        if self.line is not None:
            axis.axvline(self.line, color="0.4", linewidth=0.8, linestyle="--")
        if self.percent:
            _in_percent(axis.xaxis)
        _legend(axis, len(series))


@dataclass(frozen=True)
class Axes:
    """The names and scales of two axes. percent: y is a share."""

    xlabel: str
    ylabel: str
    log_x: bool = False
    log_y: bool = False
    percent: bool = False

    def set_up(self, axis: PlotObject, series: int) -> None:
        """Label and scale the axes of a drawing, and name its series."""
        axis.set(xlabel=self.xlabel, ylabel=textwrap.fill(self.ylabel, LINE))
        if self.log_x:
            axis.set_xscale("log")
        if self.log_y:
            axis.set_yscale("log")
        if self.percent:
            _in_percent(axis.yaxis)
        _legend(axis, series)


@dataclass(frozen=True)
class Lines(Axes):
    """A line for each column but the first, over the numbers or names of the first."""

    def height(self, table: Table) -> float:
        return 3.6

    def draw(self, table: Table, axis: PlotObject) -> None:
        first, *series = table.columns
        for name in series:
            known = [row for row in table.rows if row[name] is not None]
            means, errors = zip(*(_mean(row[name]) for row in known), strict=True)
            error = errors if any(errors) else None
            places = [row[first] for row in known]
            axis.errorbar(places, means, error, label=name, marker="o", markersize=4, capsize=2)
        self.set_up(axis, len(series))
        numbers = {row[first] for row in table.rows}
        if not self.log_x and len(numbers) <= FEW and all(isinstance(n, int) for n in numbers):
            axis.set_xticks(sorted(numbers))


@dataclass(frozen=True)
class Points(Axes):
    """Points with names. Columns: the series (a colour), the name of the point, x and y.

    Names stand above and below the points in turn, and left of the first point of a series, so that
    those of neighbours stay apart.
    """

    def height(self, table: Table) -> float:
        return 4.4

    def draw(self, table: Table, axis: PlotObject) -> None:
        from matplotlib.ticker import LogFormatter

        group, name, x, y = table.columns
        groups = dict.fromkeys(row[group] for row in table.rows)
        for i, title in enumerate(groups):
            rows = table.where({group: title}).rows
            places = [row[x] for row in rows]
            means, errors = zip(*(_mean(row[y]) for row in rows), strict=True)
            axis.errorbar(places, means, errors, fmt="o", markersize=4, elinewidth=0.8, label=title)
            for j, row in enumerate(rows):
                first = places[j] == min(places)
                shift = (-4 if first else 4, -8 if (i + j) % 2 else 3)
                axis.annotate(
                    row[name], (places[j], means[j]), shift,
                    textcoords="offset points", fontsize=6.5,
                    ha="right" if first else "left",
                )  # fmt: skip
        axis.margins(x=0.15)  # room for names
        self.set_up(axis, len(groups))
        if self.log_x:
            for place in (axis.xaxis.set_major_formatter, axis.xaxis.set_minor_formatter):
                place(LogFormatter(minor_thresholds=(2, 0.5)))


def _legend(axis: PlotObject, series: int) -> None:
    """Name the series below the axes."""
    if series > 1:
        handles, labels = axis.get_legend_handles_labels()
        columns = 2 if max(map(len, labels)) > 22 else min(series, 4)
        where = "outside lower center"
        axis.figure.legend(handles, labels, frameon=False, fontsize=8, ncols=columns, loc=where)


def _in_percent(axis: PlotObject) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1))


def _logarithmic(axis: PlotObject) -> None:
    """A logarithmic axis of x whose numbers do not overlap, and of which there are at least two."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_xscale("log")
    low, high = axis.get_xlim()
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())


def _mean(value: Any) -> tuple[float, float]:
    """A number and its error; a missing number has no bar."""
    if isinstance(value, list | tuple):
        return float(value[0]), float(value[1])
    return float(value or 0.0), 0.0


def digest(title: str, table: Table, kind: Kind) -> str:
    """A short text that differs for different data and for another kind of figure."""
    data = [title, dict(table.columns), table.rows, repr(kind)]
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]


def figure(title: str, table: Table, kind: Kind, existing: Path) -> bytes:
    """The figure as SVG: the existing file if it was drawn from these data, otherwise a new one."""
    title, table = _plain(title), _plain_table(table)
    mark = f"data {digest(title, table, kind)}"
    if existing.exists() and mark in existing.read_text("utf-8"):
        return existing.read_bytes()
    return _drawn(title, table, kind, mark)


def _plain(value: Any) -> Any:
    """A text without the code marks of Markdown; other values unchanged."""
    return value.replace("`", "") if isinstance(value, str) else value


def _plain_table(table: Table) -> Table:
    rows = [{_plain(name): _plain(value) for name, value in row.items()} for row in table.rows]
    return replace(table, columns={_plain(k): v for k, v in table.columns.items()}, rows=rows)


def _drawn(title: str, table: Table, kind: Kind, mark: str) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        made = Figure(figsize=(WIDTH, kind.height(table)), layout="constrained")
        axis = made.subplots()
        axis.set_title(title, fontsize=10)
        kind.draw(table, axis)
        _check_room(made, axis)
        image = io.BytesIO()
        made.savefig(image, format="svg", metadata={"Date": None, "Description": mark})
    return image.getvalue()


def _check_room(made: Any, axis: PlotObject) -> None:
    """Raise ValueError if the title or the name of an axis is cut off."""
    made.draw_without_rendering()
    left, low, right, high = made.bbox.extents
    for text in (t for t in (axis.title, axis.xaxis.label, axis.yaxis.label) if t.get_text()):
        a, b, c, d = text.get_window_extent().extents
        if a < left or b < low or c > right or d > high:
            raise ValueError(f"`{text.get_text()}` is longer than the figure; use fewer words")
