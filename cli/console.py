"""Terminal output for people: progress, tables."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from qgraph.compiler import Progress as Report


def console() -> Console:
    return Console(highlight=False)


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Report]:
    """A callback `(stage, done, total)` that draws one bar a stage on standard error."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=quiet,
        transient=True,
    )
    tasks: dict[str, TaskID] = {}

    def report(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            tasks[stage] = bar.add_task(stage, total=total)
        bar.update(tasks[stage], completed=done, total=total)

    with bar:
        yield report


def table(title: str, *columns: str) -> Table:
    """A plain table; columns whose name begins with `>` are right aligned."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(
            column.lstrip(">"),
            justify="right" if column.startswith(">") else "left",
            overflow="fold",
        )
    return made


def import_tensorflow_quietly() -> None:
    """Import TensorFlow without the notices that it writes past every log level.

    They go straight to file descriptor 2, so that is what is turned away meanwhile.
    """
    if "tensorflow" in sys.modules:
        return
    saved = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            importlib.import_module("tensorflow")
        finally:
            os.dup2(saved, 2)
            os.close(saved)
