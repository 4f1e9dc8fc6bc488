"""Runs of `qgraph rl train`, each in a separate folder, several side by side."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from qgraph.foreign import PlotObject

WINDOW = 3  # evaluations that are averaged
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
Row = dict[str, float]
Waiting = tuple[Path, list[str]]  # a folder, and the arguments of `qgraph rl train`
# Options of the scripts that make such runs.
Folder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are kept.")]
Tasks = Annotated[str, typer.Option("--tasks", metavar="NAMES", help="Comma separated.")]
Groups = Annotated[str, typer.Option("--groups", metavar="NAMES", help="Comma separated.")]


def chosen(names: str, known: Mapping[str, Any]) -> list[Any]:
    """The items of `known` that are named in a comma-separated text, in the order of `known`."""
    for name in names.split(","):
        if name not in known:
            raise typer.BadParameter(f"there is no `{name}`; there are {', '.join(known)}")
    return [known[name] for name in known if name in names.split(",")]


def side_by_side(waiting: Iterable[Waiting], jobs: int, ended: Callable[[Path, int], None]) -> None:
    """Make `jobs` runs at a time; `ended` gets the folder and the exit code of each."""
    left = list(waiting)
    going: list[tuple[Path, subprocess.Popen[bytes]]] = []
    while left or going:
        while left and len(going) < jobs:
            folder, said = left.pop(0)
            folder.parent.mkdir(parents=True, exist_ok=True)
            going.append((folder, start(folder, said)))
        for folder, process in list(going):
            if process.poll() is not None:
                going.remove((folder, process))
                ended(folder, process.returncode)
        time.sleep(0.2)


def start(folder: Path, said: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a run; one that has a checkpoint continues from there."""
    resumed = (folder / "checkpoint.npz").exists()
    line = [sys.executable, "-m", "qgraph", "rl", "train", "--out", str(folder), "--threads", "1"]
    line += ["--resume"] if resumed else said
    with log_of(folder).open("ab" if resumed else "wb") as log:
        variables = {**os.environ, **ONE_THREAD}
        return subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT, env=variables)


def is_complete(folder: Path) -> bool:
    """Whether a run is complete. A run that was stopped has written its energy too."""
    if not (folder / "energy.json").exists():
        return False
    wanted = json.loads((folder / "options.json").read_text())["steps"]
    return bool(rows_of(folder / "progress.csv")[-1]["actor_steps"] >= wanted)


def log_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")


def last_line(folder: Path) -> str:
    lines = log_of(folder).read_text(errors="replace").strip().split("\n")
    return next((line for line in reversed(lines) if "learner steps: return" in line), lines[-1])


def rows_of(file: Path) -> list[Row]:
    """The rows of a CSV file of numbers."""
    with file.open() as stream:
        return [{k: float(value) for k, value in row.items()} for row in csv.DictReader(stream)]


def column(rows: Sequence[Row], name: str) -> Any:
    return np.array([row[name] for row in rows])


def smooth(rows: Sequence[Row]) -> Any:
    """The mean return of each evaluation and of those before it, WINDOW in total."""
    values = column(rows, "return_mean")
    return np.array([values[max(0, i + 1 - WINDOW) : i + 1].mean() for i in range(len(values))])


def mean_and_error(values: Any) -> list[float] | None:
    """The mean and its standard error; None without values."""
    found = np.asarray(values, float)
    if not len(found):
        return None
    error = found.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
    return [float(found.mean()), float(error)]


def finite_result(found: list[float] | None) -> list[float] | None:
    """The result of `mean_and_error`, or None if it is not a number."""
    return found if found is not None and np.isfinite(found[0]) else None


def curve(
    axis: PlotObject, runs: Sequence[tuple[Any, Any]], label: str, alpha: float = 0.2, **style: Any
) -> Any:
    """The mean of runs (steps, returns) at steps that all of them have, and one standard deviation.

    alpha: of the band. Returns the mean at 60 points.
    """
    first, last = max(steps[0] for steps, _ in runs), min(steps[-1] for steps, _ in runs)
    steps = np.linspace(first, last, 60)
    curves = np.array([np.interp(steps, *run) for run in runs])
    mean, deviation = curves.mean(0), curves.std(0)
    (line,) = axis.plot(steps, mean, label=label, **style)
    band = (mean - deviation, mean + deviation)
    axis.fill_between(steps, *band, color=line.get_color(), alpha=alpha, lw=0)
    return mean
