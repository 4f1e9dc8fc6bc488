"""Mutation testing: ``python -m benchmarks.mutation run``, then ``report``.

Needs `pip install cosmic-ray coverage`. A seeded sample of mutants is drawn from the code that must
be exact. The tests that run a mutant's line are run on it, fastest first, until one fails. ``run``
writes a line of JSON per mutant and skips mutants that have a result; ``report`` prints the
results, and writes them as data for docs/results/mutation.md.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import result
from benchmarks.mutation.cover import SUITE, Cover, cover_of
from benchmarks.mutation.mutants import TARGETS, Mutant, sample
from benchmarks.mutation.report import tables
from benchmarks.mutation.trial import SURVIVED, compiled_copy, import_unchanged_modules, trial
from benchmarks.result import JsonFile

ROOT = Path(__file__).resolve().parents[2]
RUNS = Path("runs/mutation")
FIRST = 40  # tests of the first try; the fastest tests detect most mutants

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command()
def run(
    count: Annotated[int, typer.Option(min=1, metavar="N")] = 300,
    seed: Annotated[int, typer.Option(metavar="N")] = 26,
    folder: Annotated[Path, typer.Option(metavar="DIR")] = RUNS,
    only: Annotated[str, typer.Option(metavar="TEXT", help="Only paths that hold it.")] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Also try those that survived an earlier commit.")
    ] = False,
    tests: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Only these tests, like new ones. Repeatable."),
    ] = None,
) -> None:
    """Run the tests on mutants that have no result yet."""
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.jsonl"
    known = read_results(results)
    commit = _commit()
    about = {"count": count, "seed": seed, "commit": commit}
    drawn = folder / "sample.json"
    mutants = _drawn(drawn, about)
    if not mutants:
        mutants = sample(ROOT, count, seed)
        drawn.write_text(json.dumps({**about, "mutants": [asdict(m) for m in mutants]}, indent=1))
    tried = [n for n, one in known.items() if not (again and one["ended"] == SURVIVED)]
    waiting = [m for m in mutants if m.name not in tried and only in m.path]
    with compiled_copy(ROOT) as copy:
        suite = tests or SUITE
        cover = cover_of(copy, folder / f"cover-{name_of(commit, suite)}.json", suite, TARGETS)
        import_unchanged_modules()
        for i, mutant in enumerate(waiting, start=1):
            start = time.perf_counter()
            ended, by = _tried(mutant, copy, cover)
            took = round(time.perf_counter() - start, 1)
            line = {
                **asdict(mutant),
                "ended": ended,
                "by": by,
                "seconds": took,
                "commit": _commit(),
            }
            with results.open("a") as stream:
                stream.write(json.dumps(line) + "\n")
            where = f"{mutant.path}:{mutant.lines[0]}"
            typer.echo(f"{i}/{len(waiting)} {ended} {took} s {where} {by}")


def _drawn(file: Path, about: dict[str, Any]) -> list[Mutant]:
    """The sample, from an earlier run of the same commit if there is one, because drawing takes
    long.
    """
    found = json.loads(file.read_text()) if file.exists() else {}
    if any(found.get(key) != value for key, value in about.items()) or "dirty" in about["commit"]:
        return []
    return [Mutant(**{**one, "lines": tuple(one["lines"])}) for one in found["mutants"]]


def name_of(commit: str, suite: Sequence[str]) -> str:
    """A name for the coverage that is unique to the commit and the tests."""
    return f"{commit}-{hashlib.sha256(' '.join(suite).encode()).hexdigest()[:8]}"


def _tried(mutant: Mutant, copy: Path, cover: Cover) -> tuple[str, str]:
    """Run the tests that cover a mutant's line, fastest first, until one fails."""
    tests = cover.tests(mutant.path, mutant.lines, mutant.loaded)
    for part in (tests[:FIRST], tests[FIRST:]):
        ended, by = trial(mutant, copy, {test: cover.seconds[test] for test in part})
        if ended != SURVIVED:
            return ended, by
    return SURVIVED, ""


@app.command()
def report(
    folder: Annotated[Path, typer.Option(metavar="DIR")] = RUNS, json_file: JsonFile = None
) -> None:
    """Print the results of `run` so far."""
    drawn = json.loads((folder / "sample.json").read_text())
    known = read_results(folder / "results.jsonl")
    results = [known[one["name"]] for one in drawn["mutants"] if one["name"] in known]
    result.report("benchmarks.mutation", tables(results, drawn), json_file, (drawn["seed"],))


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def read_results(file: Path) -> dict[str, dict[str, Any]]:
    """The latest result of each mutant, by name."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {one["name"]: one for one in map(json.loads, lines)}


if __name__ == "__main__":
    app()
