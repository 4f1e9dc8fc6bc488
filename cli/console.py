"""Terminal output: progress, tables, next commands, warnings."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from qgraph.cli.options import own_modules
from qgraph.cli.progress_lines import progress_lines
from qgraph.progress import Progress, silent
from qgraph.stopping import raise_dropped

# Outside of a terminal, lines are not wrapped: for grep, and for logs.
PIPE_WIDTH = 1000


def console() -> Console:
    """Standard output, without markup: names may contain brackets."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(highlight=False, markup=False, width=width)


@contextmanager
def at_work(as_json: bool) -> Iterator[Progress]:
    """Show progress while the block runs, and let it import modules of the current directory.

    With `as_json`, whatever the block prints to standard output goes to standard error.
    """
    with (
        redirect_stdout(sys.stderr) if as_json else nullcontext(),
        progress_bar(lines=not as_json) as progress,
    ):
        progress("loading", 0, 1)
        own_modules()  # for a calibration from module:function

        def report(stage: str, done: int, total: int) -> None:
            raise_dropped()
            progress(stage, done, total)

        yield report


@contextmanager
def progress_bar(lines: bool = True) -> Iterator[Progress]:
    """A callback `(stage, done, total)` that draws one bar for each stage.

    Without a terminal, it prints a line every 10 s instead, or nothing if `lines` is false.
    """
    if not sys.stderr.isatty():
        with progress_lines() if lines else nullcontext(silent) as progress:
            yield progress
        return
    # A separate handle: TensorFlow's notices are kept off standard error while it is imported.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        bar = Bars(
            SpinnerColumn(),
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            console=Console(file=terminal),
            transient=True,
        )
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                for earlier in tasks.values():
                    bar.update(earlier, visible=False)
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        with bar:
            yield report


class Names:
    """Node names, one per line. Names that are too long break after slashes."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for name in self.names:
            yield Text("\n".join(fold_name(name, options.max_width)), overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        longest = max(map(len, self.names), default=0)
        return Measurement(min(12, longest), longest)


def fold_name(name: str, width: int) -> list[str]:
    """The lines of a name that is broken after slashes to fit `width`."""
    lines = [""]
    for part in re.findall(r"[^/]*/|[^/]+", name):
        if lines[-1].strip() and len(lines[-1]) + len(part) > width:
            lines.append("  ")
        lines[-1] += part
    return lines


def table(title: str | None, *columns: str) -> Table:
    """A plain table. `>name` is a column aligned right, `=name` left; neither wraps."""
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        header_style="dim",
    )
    for column in columns:
        fixed = column[:1] in ("=", ">")
        made.add_column(
            column[1:] if fixed else column,
            justify="right" if column.startswith(">") else "left",
            overflow="fold",
            no_wrap=fixed,
        )
    return made


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[RenderableType]]
) -> None:
    """Print a title of any length, a `table` and an empty line."""
    made = table(None, *columns)
    for row in rows:
        made.add_row(*row)
    out = console()
    out.print(title, style="bold", soft_wrap=True)
    out.print(made)
    out.print()


def print_last(output: Path, *commands: Sequence[str]) -> None:
    """Print the last lines of a run: the path of its output, and the next commands."""
    console().print(f"written to {output}", soft_wrap=True)
    print_next(*commands)


def print_next(*commands: Sequence[str]) -> None:
    """Print the next commands, each in a line that can be copied into a shell."""
    for i, command in enumerate(commands):
        print_command("     " if i else "next:", command)


def print_command(label: str, command: Sequence[str]) -> None:
    """Print a label, then a command of qgraph as it is typed into a shell."""
    console().print(f"{label} qgraph {shlex.join(command)}", soft_wrap=True)


def print_warnings(warnings: Sequence[str]) -> None:
    """Print one bold line for each warning. They come last, so that they are seen."""
    out = console()
    for warning in warnings:
        out.print(f"warning: {warning}", style="bold yellow", soft_wrap=True)
