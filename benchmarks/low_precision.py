"""SAC in float16, with and without what it needs: ``python -m benchmarks.low_precision run``.

Each run is `qgraph rl train --algo sac --in-process` in a separate directory. Complete runs are
skipped, and stopped runs continue from their checkpoint. ``python -m benchmarks.low_precision
report`` makes a table and a figure of the existing runs, ``memory`` counts the bytes of learners,
and ``speed`` times them on hardware with float16. Groups of variants (Bjorck et al., 2021):

- baselines: float32, float16, with loss scaling, mixed precision, with all six methods (figure 1);
- adding: methods one after the other, in the order of table 1 (figure 3);
- leaving: all but one (appendix E);
- mixing: mixed precision, without and with softplus-fix;
- significands: all six, with numbers rounded to 10 to 3 significand bits (figure 4).

A run whose numbers are not finite has crashed. It counts as the return of a random policy, since
the paper counts it as 0. Otherwise a run's return is the mean of its last three evaluations. +- is
one standard deviation over seeds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import result
from benchmarks.low_precision_memory import memory
from benchmarks.low_precision_speed import speed
from benchmarks.result import JsonFile
from benchmarks.tables import Table
from benchmarks.training_runs import (
    WINDOW,
    Folder,
    Groups,
    Tasks,
    chosen,
    column,
    curve,
    last_line,
    log_of,
    rows_of,
    side_by_side,
)
from qgraph.errors import TrainingError
from qgraph.foreign import PlotObject
from qgraph.rl.half.methods import METHODS

RUNS = Path("runs/low_precision")
ENDED = "ended.json"  # written in the directory of a run when it has ended or crashed


@dataclass(frozen=True)
class Task:
    """A task, and the return of a random policy."""

    name: str
    environment: str
    floor: float


@dataclass(frozen=True)
class Variant:
    """A variant: options of `qgraph rl train` in addition to those of the task."""

    name: str
    options: tuple[str, ...]


def _half(name: str, methods: str) -> Variant:
    return Variant(name, ("--half", methods))


TASKS = (
    Task("pendulum", "Pendulum-v1", -1200.0),
    Task("swingup", "dm_control:cartpole-swingup:held", 0.0),
)
FLOAT, ALL = Variant("float32", ()), _half("all six", "all")
NONE, MIXED = _half("float16", "none"), _half("mixed", "mixed")
GROUPS: dict[str, tuple[Variant, ...]] = {
    "baselines": (
        FLOAT, NONE, _half("loss scaling", "loss-scaling"), MIXED, ALL,
    ),
    "mixing": (MIXED, _half("mixed with softplus-fix", "mixed,softplus-fix")),
    "adding": (
        NONE,
        *(_half(f"+ {METHODS[i]}", ",".join(METHODS[: i + 1])) for i in range(len(METHODS) - 1)),
        ALL,
    ),
    "leaving": (
        ALL,
        *(_half(f"without {m}", ",".join(o for o in METHODS if o != m)) for m in METHODS),
    ),
    "significands": tuple(
        Variant(f"{bits} bits", ("--half", "all", "--significand", str(bits)))
        for bits in range(10, 2, -1)
    ),
}  # fmt: skip

app = typer.Typer(add_completion=False, no_args_is_help=True)
app.command()(memory)
app.command()(speed)
ALL_TASKS, ALL_GROUPS = ",".join(task.name for task in TASKS), ",".join(GROUPS)


@app.command()
def run(
    out: Folder = RUNS,
    tasks: Tasks = ALL_TASKS,
    groups: Groups = ALL_GROUPS,
    seeds: Annotated[int, typer.Option(min=1, metavar="N")] = 5,
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Of each run; else those of the task.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Runs side by side.")] = 1,
    more: Annotated[
        str, typer.Option(metavar="OPTIONS", help="For all runs: '--hidden 64,64 --batch 128'.")
    ] = "",
) -> None:
    """Make the missing runs, and continue stopped ones, seed by seed."""
    waiting: list[tuple[Path, list[str]]] = []
    for seed in range(seeds):
        for task in chosen(tasks, {task.name: task for task in TASKS}):
            for variant in variants_of(groups):
                folder = folder_of(out, task, variant, seed)
                said = [*command(task, variant, seed, steps), *more.split()]
                if not (folder / ENDED).exists() and (folder, said) not in waiting:
                    waiting.append((folder, said))
    side_by_side(waiting, jobs, end)


def command(task: Task, variant: Variant, seed: int, steps: int | None) -> list[str]:
    said = ["--algo", "sac", "--env", task.environment, "--seed", str(seed), *variant.options]
    return [*said, "--in-process", *(["--steps", str(steps)] if steps else [])]


def end(folder: Path, code: int) -> None:
    """Record how a run ended. Raises SystemExit if it was neither complete nor crashed."""
    crashed = code == TrainingError.exit_code
    if code and not crashed:
        raise SystemExit(f"{folder.name} ended with {code}; see {log_of(folder)}")
    text = log_of(folder).read_text(errors="replace").strip()
    facts = {"crashed": crashed, "said": text[-500:] if crashed else ""}
    (folder / ENDED).write_text(json.dumps(facts) + "\n")
    print(f"{folder.name}: {'crashed' if crashed else last_line(folder)}", flush=True)


def folder_of(out: Path, task: Task, variant: Variant, seed: int) -> Path:
    plain = variant.name.replace("+ ", "to-").replace(" ", "-")
    return out / f"{task.name}-{plain}-{seed}"


def variants_of(groups: str) -> list[Variant]:
    """The variants of all groups, without repetition."""
    return list(dict.fromkeys(v for group in chosen(groups, GROUPS) for v in group))


# -- results of the runs ------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One run: steps and returns of its evaluations, and whether it crashed."""

    steps: Any
    returns: Any
    crashed: bool

    def score(self, floor: float) -> float:
        known = len(self.returns) > 0 and not self.crashed
        return float(np.mean(self.returns[-WINDOW:])) if known else floor


def read_runs(out: Path, task: Task, variant: Variant) -> list[Run]:
    """The runs that have ended, by seed."""
    found, seed = [], 0
    while (folder := folder_of(out, task, variant, seed)).exists():
        seed += 1
        if not (folder / ENDED).exists():
            continue
        rows = rows_of(folder / "progress.csv")
        steps, returns = column(rows, "actor_steps"), column(rows, "return_mean")
        crashed = json.loads((folder / ENDED).read_text())["crashed"]
        found.append(Run(steps, returns, crashed))
    return found


@app.command()
def report(
    out: Folder = RUNS,
    tasks: Tasks = ALL_TASKS,
    groups: Groups = ALL_GROUPS,
    json_file: JsonFile = None,
    figure: Annotated[Path | None, typer.Option(metavar="PNG")] = None,
) -> None:
    """Make a table and a figure of the runs that have ended."""
    facts = []
    for task in chosen(tasks, {task.name: task for task in TASKS}):
        floats = scores(out, task, FLOAT)
        for variant in variants_of(groups):
            each = scores(out, task, variant)
            if each:
                facts.append(facts_of(out, task, variant, each, floats))
    if not facts:
        raise typer.BadParameter(f"{out} has no run that is over")
    if figure is not None:
        draw(out, chosen(tasks, {task.name: task for task in TASKS}), groups.split(","), figure)
    columns = {"task": "", "variant": "", "seeds": "d", "crashed": "d", "return": ",.0f",
               "of float32": ".0%"}  # fmt: skip
    notes = ["return: mean of the last three evaluations; ± is one standard deviation over seeds"]
    made = Table("SAC in float16", columns, notes=notes)
    for fact in facts:
        made.add(*fact.values())
    seeds = range(max(fact["seeds"] for fact in facts))
    result.report("benchmarks.low_precision", [made], json_file, seeds)


def scores(out: Path, task: Task, variant: Variant) -> list[float]:
    return [run.score(task.floor) for run in read_runs(out, task, variant)]


def facts_of(
    out: Path, task: Task, variant: Variant, each: list[float], floats: list[float]
) -> dict[str, Any]:
    """A row of the table; `of float32` is the share of the way from the floor to float32's
    return.
    """
    share = None
    if floats:
        share = (np.mean(each) - task.floor) / (np.mean(floats) - task.floor)
    return {
        "task": task.name,
        "variant": variant.name,
        "seeds": len(each),
        "crashed": sum(run.crashed for run in read_runs(out, task, variant)),
        "return": [float(np.mean(each)), float(np.std(each, ddof=1)) if len(each) > 1 else 0.0],
        "of_float32": share and float(share),
    }


def draw(out: Path, tasks: Sequence[Task], groups: Sequence[str], path: Path) -> None:
    """A row for each task: learning curves of the baselines, and bars for each other group."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        len(tasks),
        len(groups),
        figsize=(4 * len(groups), 3.4 * len(tasks)),
        squeeze=False,
        layout="constrained",
    )
    for row, task in zip(axes, tasks, strict=True):
        for axis, name in zip(row, groups, strict=True):
            if name == "baselines":
                _curves(axis, out, task)
            else:
                _bars(axis, out, task, name)
            axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _curves(axis: PlotObject, out: Path, task: Task) -> None:
    for variant in GROUPS["baselines"]:
        runs = [r for r in read_runs(out, task, variant) if len(r.steps) and not r.crashed]
        if not runs:
            continue
        curve(
            axis, [(run.steps, run.returns) for run in runs], f"{variant.name}, {len(runs)} seeds"
        )
    axis.set(title=f"{task.name}: baselines", xlabel="steps", ylabel="return")
    if axis.lines:
        axis.legend(frameon=False, fontsize="small")


def _bars(axis: PlotObject, out: Path, task: Task, group: str) -> None:
    found = [(v.name, read_runs(out, task, v)) for v in GROUPS[group]]
    shown = [(name, runs) for name, runs in found if runs]
    for place, (_, runs) in enumerate(shown):
        each = [run.score(task.floor) for run in runs]
        error = np.std(each) or None
        height = np.mean(each) - task.floor
        axis.bar(place, height, bottom=task.floor, yerr=error, capsize=3, color="tab:blue")
        crashed = sum(run.crashed for run in runs)
        if crashed:  # as in the paper's figure 3
            text = "crash" if crashed == len(runs) else f"{crashed} crash"
            top = task.floor + height + (error or 0)
            axis.annotate(
                text, (place, top), (0, 3), textcoords="offset points", ha="center", fontsize=7
            )
    floats = scores(out, task, FLOAT)
    if floats:
        axis.axhline(np.mean(floats), color="grey", lw=1, ls="--")
    axis.set_xticks(range(len(shown)), [name for name, _ in shown], rotation=60, ha="right")
    axis.set(title=f"{task.name}: {group}")


if __name__ == "__main__":
    app()
