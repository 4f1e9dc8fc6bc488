"""Compare the speed of two checkouts: ``python -m benchmarks.before_after OLD [NEW]``.

Each job runs in a separate process with the code of one checkout, in turns: old, new, old, new. A
process repeats its job and reports the median. The table has the median of these medians, their
range, and the ratio new / old. Networks are generated, so that both checkouts run the same one. A
checkout needs its native library in `qgraph/` or in its own `.venv`. A job that a checkout does not
support is skipped and named.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import before_after_jobs
from benchmarks.before_after_jobs import JOBS, Seconds
from benchmarks.checkouts import variables_of
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table

NEW = Path(__file__).resolve().parents[1]


def main(
    old: Annotated[Path, typer.Argument(help="Checkout to compare with.")],
    new: Annotated[Path, typer.Argument(help="Checkout that is measured.")] = NEW,
    rounds: Annotated[int, typer.Option(help="Processes of each checkout for each job.")] = 5,
    jobs: Annotated[list[str] | None, typer.Option("--job", help="Jobs; all by default.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Measure both checkouts in turns and print a table."""
    found: dict[str, dict[str, list[float]]] = {}
    left_out = []
    for job in jobs or list(JOBS):
        try:
            found.update(_in_turns(job, {"old": old, "new": new}, rounds))
        except subprocess.CalledProcessError as error:
            left_out.append(f"left out: {job}, which {error.cmd[0]} does not run")
    spans = {f"{name}, {end} ms": ".4g" for name in ("old", "new") for end in ("min", "max")}
    table = Table(
        f"Medians of {rounds} processes",
        {"figure": "", "old ms": ".4g", "new ms": ".4g", "new / old": ".3f", **spans},
        notes=left_out,
    )
    for figure, both in found.items():
        old_ms, new_ms = (1e3 * statistics.median(times) for times in both.values())
        ends = (1e3 * end(times) for times in both.values() for end in (min, max))
        table.add(figure, old_ms, new_ms, new_ms / old_ms, *ends)
    report("benchmarks.before_after", [table], json_file)


def _in_turns(job: str, trees: dict[str, Path], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each measurement of a job, by checkout."""
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for name, tree in trees.items():
            for figure, seconds in _measured(tree.resolve(), job).items():
                found.setdefault(figure, {name: [] for name in trees})[name].append(seconds)
    return found


def _measured(tree: Path, job: str) -> Seconds:
    python = tree / ".venv/bin/python"
    command = [str(python) if python.exists() else sys.executable, before_after_jobs.__file__, job]
    with variables_of(tree) as variables:
        if python.exists():  # its import hook, if there is one, finds its own library
            variables["PYTHONPATH"] = str(tree)
        environment = {**os.environ, **variables}
        done = subprocess.run(
            command, env=environment, cwd=tree, check=True, stdout=subprocess.PIPE, text=True
        )
    measured: Seconds = json.loads(done.stdout.splitlines()[-1])
    return measured


if __name__ == "__main__":
    typer.run(main)
