"""Learn policies from actors of 32 and of 8 bits: ``python -m benchmarks.rl_training run``.

Each run is `qgraph rl train` in a separate directory. Complete runs are skipped, so the benchmark
can be stopped and started again. With `--jobs 2`, runs of the same seed with different bits run
side by side, under the same conditions. ``python -m benchmarks.rl_training report`` makes tables
and figures of the existing runs:

- the best return: the best mean of three consecutive evaluations of the full-precision policy;
- the actor steps and seconds (without evaluations) until a run reaches 95 % of the way from the
  task's floor to the mean best return of the float runs, for the seeds that reach it;
- waiting: a learner that waits has actors that are too slow, and the other way round;
- energy and emissions: codecarbon's estimates from the load of the processor, for whole runs;
  energy also as a ratio to the float runs.

Return +- is the standard error over seeds; bands in figures are one standard deviation.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import result
from benchmarks.result import JsonFile
from benchmarks.tables import Table
from benchmarks.training_runs import (
    WINDOW,
    Folder,
    Row,
    chosen,
    column,
    curve,
    finite_result,
    is_complete,
    last_line,
    mean_and_error,
    rows_of,
    side_by_side,
    smooth,
)  # fmt: skip

FLOAT = 32
REACH = 0.95  # share of the way to the best return


@dataclass(frozen=True)
class Task:
    """A task, its algorithm, and the return of a random policy."""

    name: str
    algorithm: str
    environment: str
    floor: float
    options: tuple[str, ...] = ()


# Policies of three layers of 2048 that learn from each step once: acting costs more than learning,
# so actors are the bottleneck. The rate is lower than for narrow policies.
WIDE = (
    "--hidden", "2048,2048,2048", "--batch", "320", "--precision", "mixed_bfloat16",
    "--learning-rate", "1e-4", "--layer-norm", "--reward-scale", "0.05", "--entropy-cost", "0.005",
    "--evaluate-every", "25", "--episodes", "5",
)  # fmt: skip

TASKS = (
    Task("cartpole", "dqn", "CartPole-v1", 0.0),
    Task("acrobot", "dqn", "Acrobot-v1", -500.0),
    Task("mountain-car", "dqn", "MountainCar-v0", -200.0),
    Task("balance", "d4pg", "dm_control:cartpole-balance", 0.0),
    # Actors are the bottleneck of this task: a wide policy, and few learner steps. It shows the
    # speed of runs, not the quality of what they learn.
    Task(
        "balance-wide",
        "d4pg",
        "dm_control:cartpole-balance",
        0.0,
        ("--hidden", "2048,2048,2048", "--spi", "1", "--steps", "12000", "--publish-every", "1",
         "--evaluate-every", "40", "--episodes", "1"),
    ),
    Task("cartpole-wide", "impala", "CartPole-v1", 0.0, (*WIDE, "--steps", "100000")),
    Task("acrobot-wide", "impala", "Acrobot-v1", -500.0, (*WIDE, "--steps", "120000")),
)  # fmt: skip

BY_NAME = {task.name: task for task in TASKS}

app = typer.Typer(add_completion=False, no_args_is_help=True)
Names = Annotated[str, typer.Option("--tasks", metavar="NAMES", help="Comma separated.")]
ALL = ",".join(BY_NAME)
RUNS = Path("runs/rl_training")


@app.command()
def run(
    out: Folder = RUNS,
    tasks: Names = ALL,
    bits: Annotated[str, typer.Option(metavar="BITS", help="Comma separated.")] = "32,8",
    seeds: Annotated[int, typer.Option(min=1, metavar="N")] = 5,
    actors: Annotated[int, typer.Option(min=1, metavar="N")] = 1,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Runs side by side.")] = 1,
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Steps of each run; few for a trial.")
    ] = None,
) -> None:
    """Make the missing runs, seed by seed."""
    waiting = [
        (folder_of(out, task, width, seed), command(task, width, seed, actors, steps))
        for seed in range(seeds)
        for task in chosen(tasks, BY_NAME)
        for width in map(int, bits.split(","))
    ]
    for folder, _ in waiting:
        if not is_complete(folder):
            shutil.rmtree(folder, ignore_errors=True)
    side_by_side(
        ((folder, said) for folder, said in waiting if not is_complete(folder)),
        jobs,
        lambda folder, _: print(f"{folder.name}: {last_line(folder)}", flush=True),
    )


def command(task: Task, bits: int, seed: int, actors: int, steps: int | None) -> list[str]:
    said = ["--algo", task.algorithm, "--env", task.environment, "--seed", str(seed)]
    said += ["--actors", str(actors), "--actor-bits", str(bits), *task.options]
    return [*said, "--energy", *(["--steps", str(steps)] if steps else [])]


def folder_of(out: Path, task: Task, bits: int, seed: int) -> Path:
    return out / f"{task.name}-{bits}-{seed}"


# -- results of the runs ------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One run: its rows of progress.csv, and its energy."""

    seed: int
    rows: tuple[Row, ...]
    energy: dict[str, Any]

    def first(self, reach: float) -> Row | None:
        """The first row at which the mean of a whole window reaches `reach`."""
        there = [i for i, v in enumerate(smooth(self.rows)) if i + 1 >= WINDOW and v >= reach]
        return self.rows[there[0]] if there else None


@dataclass(frozen=True)
class Group:
    """The runs of one task with one number of bits."""

    task: Task
    bits: int
    runs: tuple[Run, ...]

    def of(self, name: str) -> Any:
        """The last value of a column, for each run."""
        return np.array([run.rows[-1][name] for run in self.runs])

    def first(self, reach: float) -> list[Row]:
        """The first row of each run that reaches `reach`, without the others."""
        return [row for row in (run.first(reach) for run in self.runs) if row is not None]

    @property
    def best(self) -> Any:
        """The best mean of each run, or NaN if it has too few evaluations."""
        whole = [smooth(run.rows)[WINDOW - 1 :] for run in self.runs]
        return np.array([values.max() if len(values) else np.nan for values in whole])


def read_runs(out: Path, tasks: Sequence[Task]) -> Iterator[Group]:
    """The complete runs of each task, the widest first."""
    for task in tasks:
        found: dict[int, list[Run]] = {}
        for folder in sorted(out.glob(f"{task.name}-[0-9]*-[0-9]*")):
            name, bits, seed = folder.name.rsplit("-", 2)
            if name != task.name or not folder.is_dir() or not is_complete(folder):
                continue
            rows = tuple(rows_of(folder / "progress.csv"))
            energy = json.loads((folder / "energy.json").read_text())
            found.setdefault(int(bits), []).append(Run(int(seed), rows, energy))
        for width in sorted(found, reverse=True):
            yield Group(task, width, tuple(found[width]))


@app.command()
def report(
    out: Folder = RUNS,
    tasks: Names = ALL,
    json_file: JsonFile = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Learning curves over seeds.")
    ] = None,
) -> None:
    """Make tables and a figure of the existing runs."""
    groups = list(read_runs(out, chosen(tasks, BY_NAME)))
    if not groups:
        raise typer.BadParameter(f"{out} has no complete run")
    floats = {g.task.name: g for g in groups if g.bits == FLOAT}
    facts = [facts_of(group, floats.get(group.task.name)) for group in groups]
    if figure is not None:
        draw(groups, figure)
    made = Table("Training", COLUMNS, notes=[NOTE])
    for fact in facts:
        made.add(*cells(fact))
    seeds = {run.seed for group in groups for run in group.runs}
    result.report("benchmarks.rl_training", [made], json_file, sorted(seeds))


COLUMNS = {
    "task": "",
    "bits": "d",
    "seeds": "d",
    "best return": ",.0f",
    "last return": ",.0f",
    "seeds to 95 %": "d",
    "steps to 95 %": ",.0f",
    "seconds to 95 %": ",.0f",
    "of float's seconds": ".2f",
    "steps/s": ",.0f",
    "learner waits": ".0%",
    "actors wait": ".0%",
    "samples per insert": ".1f",
    "staleness": ".0f",
    "energy": ".2f",
    "of processor": ".2f",
    "kJ": ".1f",
    "g CO2": ".2f",
}
NOTE = "energy, kJ, g CO2: estimated by codecarbon from the load of the processor, for whole runs"


def facts_of(group: Group, floating: Group | None) -> dict[str, Any]:
    """A row of the table; `energy` is the ratio to the float runs of the same seeds."""
    base = floating or group
    high = float(base.best.mean())
    reach = group.task.floor + REACH * (high - group.task.floor)
    reached, of_float = group.first(reach), base.first(reach)
    seconds = mean_and_error([row["seconds"] for row in reached])
    float_seconds = mean_and_error([row["seconds"] for row in of_float])
    grams = [
        1000 * run.energy["emissions_kg"] for run in group.runs if "emissions_kg" in run.energy
    ]
    speed = group.of("actor_steps") / group.of("seconds")
    return {
        "task": group.task.name,
        "bits": group.bits,
        "seeds": len(group.runs),
        "best": mean_and_error(group.best),
        "last": mean_and_error(group.of("return_mean")),
        "reach": reach,
        "reached": len(reached),
        "steps": mean_and_error([row["actor_steps"] for row in reached]),
        "seconds": seconds,
        "of_float": seconds[0] / float_seconds[0] if seconds and float_seconds else None,
        "speed": mean_and_error(speed),
        "learner_waiting": float(group.of("learner_waiting").mean()),
        "actors_waiting": float(group.of("actors_waiting").mean()),
        "samples_per_insert": float(group.of("samples_per_insert").mean()),
        "staleness": float(np.mean([column(run.rows, "staleness").mean() for run in group.runs])),
        "energy": ratio(group, base, "estimated_kwh"),
        "processor_energy": ratio(group, base, "of_processor"),
        "kilojoules": 3600 * float(np.mean([run.energy["estimated_kwh"] for run in group.runs])),
        "grams": float(np.mean(grams)) if grams else None,
    }


def ratio(group: Group, base: Group, part: str) -> float | None:
    """The ratio of a part of the energy at the end of the runs, over seeds that both have."""
    ours = {run.seed: run.energy[part] for run in group.runs}
    theirs = {run.seed: run.energy[part] for run in base.runs}
    both = ours.keys() & theirs.keys()
    total = sum(theirs[seed] for seed in both)
    return sum(ours[seed] for seed in both) / total if total else None


def cells(fact: dict[str, Any]) -> tuple[Any, ...]:
    return (
        fact["task"],
        fact["bits"],
        fact["seeds"],
        finite_result(fact["best"]),
        fact["last"],
        fact["reached"],
        fact["steps"],
        fact["seconds"],
        fact["of_float"],
        fact["speed"][0],
        fact["learner_waiting"],
        fact["actors_waiting"],
        fact["samples_per_insert"],
        fact["staleness"],
        fact["energy"],
        fact["processor_energy"],
        fact["kilojoules"],
        fact["grams"],
    )


def draw(groups: Sequence[Group], path: Path) -> None:
    """A panel for each task with enough evaluations: the mean over seeds, and one standard
    deviation, against steps.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = [group for group in groups if np.isfinite(group.best).all()]
    if not groups:
        raise typer.BadParameter("no run has evaluations enough for a figure")
    names = list(dict.fromkeys(group.task.name for group in groups))
    figure, axes = pyplot.subplots(
        1, len(names), figsize=(4.2 * len(names), 3.2), squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes[0], names, strict=True):
        for group in (g for g in groups if g.task.name == name):
            label = f"{'float32' if group.bits == FLOAT else f'int{group.bits}'} actors"
            runs = [(column(run.rows, "actor_steps"), smooth(run.rows)) for run in group.runs]
            curve(axis, runs, f"{label}, {len(runs)} seeds")
        axis.set(title=name, xlabel="actor steps", ylabel="return, full precision")
        axis.legend(frameon=False, fontsize="small")
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


if __name__ == "__main__":
    app()
